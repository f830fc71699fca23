//! The file under test takes loom's atomics in this package.

fn main() {
    println!("cargo::rustc-cfg=tollgate_loom");
}
