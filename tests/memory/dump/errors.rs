//! Each error says what is wrong, where, and the way out.

use std::error::Error;
use std::fs::{self, File};
use std::hash::Hasher;
use std::io::{self, ErrorKind, Read, Write};

use siphasher::sip::SipHasher13;

use super::{Folder, dump_of};
use tollgate::backend::Memory;

const OLDER: &str = "(restore an older dump, or start without one: then all buckets are full)";

#[track_caller]
fn says<T>(result: Result<T, io::Error>, wanted: &str) -> io::Error {
    let error = result.map(drop).unwrap_err();
    assert_eq!(error.to_string(), wanted);
    assert!(error.source().is_none(), "the message has the cause");
    error
}

fn load(dump: &[u8]) -> Result<Memory, io::Error> {
    Memory::new().load(dump)
}

#[test]
fn damage_is_named_with_its_place() {
    let dump = dump_of(&Memory::new());
    assert_eq!(dump.len(), 926);
    let error = says(
        load(&dump[..900]),
        &format!("the dump is damaged: it ends at byte 900, before its end mark {OLDER}"),
    );
    assert_eq!(error.kind(), ErrorKind::InvalidData);
    let error = says(
        load(&[dump.as_slice(), b"\n"].concat()),
        &format!("the dump is damaged: it goes on at byte 926, after its end mark {OLDER}"),
    );
    assert_eq!(error.kind(), ErrorKind::InvalidData);
    for (place, block) in [(17, 0), (30, 28), (700, 28), (890, 881)] {
        let mut dump = dump.clone();
        dump[place] ^= 4;
        let text = format!("the block at byte {block} does not match its check {OLDER}");
        let error = says(load(&dump), &format!("the dump is damaged: {text}"));
        assert_eq!(error.kind(), ErrorKind::InvalidData);
    }
}

#[test]
fn another_file_is_told_from_a_damaged_one() {
    for other in ["{\"limits\": []}", "tollgate buckets\nand more", "x"] {
        let error = says(
            load(other.as_bytes()),
            "the dump is not a dump of a memory store: it does not begin with `tollgate memory` \
             (name another file, or start without a dump: then all buckets are full)",
        );
        assert_eq!(error.kind(), ErrorKind::InvalidData);
    }
}

/// The bytes before the first block of a dump of this version, with a check that is right.
fn head(version: u32) -> Vec<u8> {
    let mut head = b"tollgate memory\n".to_vec();
    head.extend(version.to_le_bytes());
    let mut check = SipHasher13::new_with_keys(0x746f_6c6c_6761_7465, 0x6d65_6d6f_7279_0001);
    check.write(&head);
    head.extend(check.finish().to_le_bytes());
    head
}

#[test]
fn a_newer_version_is_told_from_damage() {
    let error = says(
        load(&[head(7), b"whatever the version 7 will have".to_vec()].concat()),
        "the dump has the format 7, written by a newer version of tollgate, and this one reads the \
         format 1 (go back to that version, or start without a dump: then all buckets are full)",
    );
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    says(
        load(&head(0)),
        &format!(
            "the dump is damaged: the block at byte 0 has the format 0, which does not exist \
             {OLDER}"
        ),
    );
    assert!(dump_of(&Memory::new()).starts_with(&head(1)));
}

struct Broken(ErrorKind);

impl Read for Broken {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(self.0.into())
    }
}

impl Write for Broken {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(self.0.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A reader that is interrupted before each byte.
struct Slow<'b>(&'b [u8], bool);

impl Read for Slow<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.1 = !self.1;
        match (self.1, self.0.split_first(), buffer.first_mut()) {
            (true, ..) => Err(ErrorKind::Interrupted.into()),
            (_, Some((byte, rest)), Some(place)) => {
                (*place, self.0) = (*byte, rest);
                Ok(1)
            }
            _ => Ok(0),
        }
    }
}

#[test]
fn a_stream_that_fails_is_the_cause() {
    let error = says(
        Memory::new().load(Broken(ErrorKind::ConnectionReset)),
        "cannot read the dump: connection reset",
    );
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    let error = says(
        Memory::new().save(Broken(ErrorKind::BrokenPipe)),
        "cannot write the dump: broken pipe",
    );
    assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    assert!(Memory::new().load(Slow(&dump_of(&Memory::new()), false)).is_ok());
}

#[test]
fn a_file_that_is_not_there_is_told_from_others() {
    let folder = Folder::new();
    let path = folder.file();
    let error = says(
        Memory::new().load_from(&path),
        &format!(
            "cannot read the dump `{}`: No such file or directory (os error 2) (`load_or_empty` \
             begins without one)",
            path.display()
        ),
    );
    assert_eq!(error.kind(), ErrorKind::NotFound);
    fs::write(&path, dump_of(&Memory::new()).split_last().unwrap().1).unwrap();
    let error = says(
        Memory::new().load_from(&path),
        &format!(
            "the dump `{}` is damaged: it ends at byte 925, before its end mark {OLDER}",
            path.display()
        ),
    );
    assert_eq!(error.kind(), ErrorKind::InvalidData);
}

/// A volume that is not mounted would otherwise refill all buckets.
#[test]
fn a_folder_that_is_missing_is_no_first_start() {
    let folder = Folder::new();
    for path in [folder.0.join("volume/limits.dump"), {
        fs::write(folder.0.join("file"), "").unwrap();
        folder.0.join("none/file/limits.dump")
    }] {
        let error = says(
            Memory::new().load_or_empty(&path),
            &format!(
                "the dump `{}` cannot be written: its folder does not exist (create it, or name \
                 another)",
                path.display()
            ),
        );
        assert_eq!(error.kind(), ErrorKind::Other);
    }
    // In the folder in which the process runs.
    assert!(Memory::new().load_or_empty("no-such.dump").unwrap().is_empty());
}

#[cfg(unix)]
#[test]
fn a_link_that_leads_nowhere_is_no_first_start() {
    let folder = Folder::new();
    std::os::unix::fs::symlink(folder.0.join("gone/limits.dump"), folder.file()).unwrap();
    let error = says(
        Memory::new().load_or_empty(folder.file()),
        &format!(
            "the dump `{}` is a dangling link (restore its target, or remove it)",
            folder.file().display()
        ),
    );
    assert_eq!(error.kind(), ErrorKind::Other);
    let error = Memory::new().save_to(folder.file()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
}

/// Nothing is written, and nothing is replaced.
#[cfg(target_os = "linux")]
#[test]
fn a_path_that_no_dump_can_have_is_an_error_of_the_save() {
    let folder = Folder::new();
    fs::create_dir(folder.file()).unwrap();
    fs::write(folder.0.join("file"), "of another program").unwrap();
    let path = |name: &str| folder.0.join(name);
    for (path, wanted) in [
        (folder.file(), "it is a folder (name a file in it)"),
        (path(".."), "it is a folder (name a file in it)"),
        (path("volume/limits.dump"), "No such file or directory (os error 2)"),
        (path("file/limits.dump"), "Not a directory (os error 20)"),
        ("/dev/null".into(), "it is no ordinary file (name another)"),
        ("/proc/version/limits.dump".into(), "Not a directory (os error 20)"),
        ("".into(), "it has no file name (name a file)"),
    ] {
        let wanted = format!(
            "cannot write the dump `{}`: {wanted} (the dump before it is unchanged)",
            path.display()
        );
        says(Memory::new().save_to(&path), &wanted);
        assert_eq!(folder.names(), ["file", "limits.dump"]);
    }
    assert!(!File::open("/dev/null").unwrap().metadata().unwrap().is_file());
    assert_eq!(fs::read(path("file")).unwrap(), b"of another program");
}

#[cfg(target_os = "linux")]
#[test]
fn a_device_that_is_full_is_an_error_of_the_save() {
    let full = File::options().write(true).open("/dev/full").unwrap();
    says(Memory::new().save(full), "cannot write the dump: No space left on device (os error 28)");
}
