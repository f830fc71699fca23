//! What belongs to names of limits: read without a lock and without an allocation.

use std::iter::successors;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A table by names that only grows.
///
/// It is for what each refused request of a flood looks up: known names are found without a lock, and
/// a new name waits for nothing but the store of a pointer. No code of others runs meanwhile.
#[derive(Debug)]
pub struct NameTable<T> {
    chains: [Link<T>; CHAINS],
    len: AtomicUsize,
}

type Link<T> = OnceLock<Box<Named<T>>>;

#[derive(Debug)]
struct Named<T> {
    name: Box<str>,
    value: T,
    next: Link<T>,
}

/// Few programs have more limits.
const CHAINS: usize = 64;

// Written by hand: a derived one would ask for `T: Default`.
impl<T> Default for NameTable<T> {
    fn default() -> Self {
        let chains = [const { OnceLock::new() }; CHAINS];
        Self { chains, len: AtomicUsize::new(0) }
    }
}

impl<T> NameTable<T> {
    /// The value of a name; `None` if it has none.
    pub fn get(&self, name: &str) -> Option<&T> {
        entries(self.chain(name)).find(|named| *named.name == *name).map(|named| &named.value)
    }

    /// The value of a name, which gets the one that `make` makes if it has none; `None` if `most`
    /// other names have theirs, or a few more.
    pub fn get_or_add(&self, name: &str, most: usize, make: impl FnOnce() -> T) -> Option<&T> {
        match self.get(name) {
            Some(value) => Some(value),
            None => self.add(name, most, make()),
        }
    }

    #[cold]
    fn add(&self, name: &str, most: usize, value: T) -> Option<&T> {
        // A name that is counted is found: another thread may have added it meanwhile. Threads that add
        // the last names at once exceed `most` by as many.
        if self.len.load(Ordering::Acquire) >= most {
            return self.get(name);
        }
        let mut new = Box::new(Named { name: name.into(), value, next: OnceLock::new() });
        let mut link = self.chain(name);
        loop {
            // Another thread may have added a name here, and perhaps this one.
            let Err(back) = link.set(new) else {
                self.len.fetch_add(1, Ordering::Release);
                return link.get().map(|named| &named.value);
            };
            let named = link.get()?;
            if *named.name == *name {
                return Some(&named.value);
            }
            (new, link) = (back, &named.next);
        }
    }

    fn chain(&self, name: &str) -> &Link<T> {
        // Clients choose no names, so a sum of the bytes tells them apart well enough.
        let add = |sum: u8, byte: u8| sum.wrapping_mul(31).wrapping_add(byte);
        let [first, ..] = &self.chains;
        self.chains.get(usize::from(name.bytes().fold(0, add)) % CHAINS).unwrap_or(first)
    }
}

fn entries<T>(chain: &Link<T>) -> impl Iterator<Item = &Named<T>> {
    successors(chain.get(), |named| named.next.get()).map(|named| &**named)
}

/// One after the other: a chain that drops its next link from its own destructor would need a frame
/// of the stack for each name.
impl<T> Drop for NameTable<T> {
    fn drop(&mut self) {
        for chain in &mut self.chains {
            let mut next = chain.take();
            while let Some(mut named) = next {
                next = named.next.take();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;
    use std::thread;

    use super::*;

    #[test]
    fn each_name_has_one_value_also_where_threads_add_it_at_once() {
        let table = NameTable::<AtomicU64>::default();
        let names: Vec<_> = (0..300).map(|nth| format!("limit {nth}")).collect();
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for name in &names {
                        let value = table.get_or_add(name, 300, AtomicU64::default).unwrap();
                        value.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        for name in &names {
            assert_eq!(table.get(name).unwrap().load(Ordering::Relaxed), 4, "{name}");
        }
        assert_eq!(table.len.load(Ordering::Relaxed), 300);
    }

    #[test]
    fn a_table_keeps_no_more_names_than_it_may() {
        let table = NameTable::default();
        assert_eq!(table.get_or_add("a", 2, || 1), Some(&1));
        assert_eq!(table.get_or_add("b", 2, || 2), Some(&2));
        assert_eq!(table.get_or_add("c", 2, || 3), None);
        assert_eq!(table.get_or_add("a", 2, || 4), Some(&1), "it is known");
        assert_eq!(table.get("c"), None);
    }

    #[test]
    fn a_long_chain_is_dropped_on_a_small_stack() {
        let fill = || {
            let table = NameTable::default();
            for nth in 0..10_000 {
                table.get_or_add(&nth.to_string(), usize::MAX, || ()).unwrap();
            }
            drop(table);
        };
        thread::Builder::new().stack_size(64 * 1024).spawn(fill).unwrap().join().unwrap();
    }
}
