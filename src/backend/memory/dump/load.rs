//! Loading a dump into a store.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::path::Path;

use super::batch::read_batch;
use super::dump_error::DumpProblem;
use super::fields::Fields;
use super::reader::{DumpBlock, DumpReader};
use super::replacement::folder_of;
use super::{BlockKind, probe};
use crate::backend::memory::Memory;
use crate::backend::memory::fingerprint::{HASHER_WORDS, Hasher};
use crate::backend::memory::shards::Shards;
use crate::clock::Timestamp;

/// Loading the buckets that another process has [saved](Self::save_to).
impl Memory {
    /// Loads a dump into this store, in place of what it holds. The bound and the clock stay.
    ///
    /// The store then decides as the saved one would at the same time: also about buckets that are
    /// blocked or in debt, and with other numbers for a limit, as if these had changed while the
    /// other store ran. Names of limits and keys have to be the same.
    ///
    /// * **Time goes on from the dump.** The buckets gain for the time between, by the machine's
    ///   clock. If that clock is behind the dump, because it was set back or is not set yet, the
    ///   store counts on from the time of the dump until the machine's clock is later: otherwise no
    ///   bucket would gain until then.
    /// * **Requests that waited** when the dump was written are gone with their process, and what
    ///   they had reserved stays taken: the bucket gains it back as time passes. So the loaded
    ///   store never grants more than the saved one. Give waiters their time first, by
    ///   [`drain`](crate::RateLimiter::drain), so that none is left when the process saves for the
    ///   last time.
    /// * **A lower bound** than that of the saved store keeps the buckets that have used the most:
    ///   a full shard evicts as [`max_keys`](Self::max_keys) says, also among those that are
    ///   loaded.
    /// * **Permits** belong to their process. Those of the saved store give nothing back to this
    ///   one if any bucket was reset.
    ///
    /// Reading takes a fixed amount of memory besides that of the store, and checks each block
    /// before it uses it. The stream is read to its end, where nothing may follow the dump.
    ///
    /// # Errors
    ///
    /// If the stream fails; if it is no whole dump, as bytes have changed, are missing or are too many
    /// ([`InvalidData`](ErrorKind::InvalidData)); or if another version of this crate wrote it, in a
    /// way that this one cannot read ([`Unsupported`](ErrorKind::Unsupported)). The message says what
    /// is wrong, at which byte, and the way out. There is no store then, so that a damaged dump does
    /// not refill all buckets unnoticed.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::io::ErrorKind;
    /// use tollgate::backend::Memory;
    ///
    /// let mut dump = Vec::new();
    /// Memory::new().save(&mut dump)?;
    /// dump[40] ^= 1;
    /// let error = Memory::new().load(dump.as_slice()).unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::InvalidData);
    /// assert_eq!(
    ///     error.to_string(),
    ///     "the dump is damaged: the block at byte 28 does not match its check (restore an older \
    ///      dump, or start without one: then all buckets are full)"
    /// );
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// [`save`](Self::save) shows the way there and back.
    pub fn load(self, mut dump: impl Read) -> io::Result<Self> {
        self.read_dump(&mut dump).map_err(|problem| problem.into_io(None))
    }

    /// Loads a dump from a file, as [`load`](Self::load) does.
    ///
    /// It blocks while it reads.
    ///
    /// # Errors
    ///
    /// As [`load`](Self::load), and if the file cannot be read. If there is none, the kind is
    /// [`NotFound`](ErrorKind::NotFound).
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::backend::Memory;
    ///
    /// let error = Memory::new().load_from("no/such/file").unwrap_err();
    /// assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
    /// ```
    pub fn load_from(self, path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref();
        let opened = File::open(path).map_err(DumpProblem::Read);
        opened
            .and_then(|mut file| self.read_dump(&mut file))
            .map_err(|problem| problem.into_io(Some(path)))
    }

    /// Loads a dump from a file if there is one, and leaves the store as it is otherwise: the line
    /// for a start.
    ///
    /// Only a file that is not there counts as a first start. A folder that is missing (a volume
    /// that is not mounted, say), a link that leads nowhere, and a file that is damaged or empty
    /// are errors: the buckets of all clients would be full.
    ///
    /// It blocks while it reads.
    ///
    /// # Errors
    ///
    /// As [`load_from`](Self::load_from), but for a file that is not there.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Arc;
    /// use tollgate::RateLimiter;
    /// use tollgate::backend::Memory;
    ///
    /// # let folder = std::env::temp_dir().join(format!("tollgate-doc-{}", std::process::id()));
    /// # std::fs::create_dir(&folder)?;
    /// # let path = folder.join("limits.dump");
    /// let memory = Arc::new(Memory::new().max_keys(50_000).load_or_empty(&path)?);
    /// let limiter = RateLimiter::new(Arc::clone(&memory));
    /// // serve until the server is told to stop, and then:
    /// memory.save_to(&path)?;
    /// # drop(limiter);
    /// assert!(Memory::new().load_from(&path)?.is_empty());
    /// # std::fs::remove_dir_all(&folder)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn load_or_empty(self, path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref();
        match File::open(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                if fs::symlink_metadata(path).is_ok() {
                    return Err(DumpProblem::DeadLink.into_io(Some(path)));
                }
                match fs::metadata(folder_of(path)) {
                    Ok(folder) if folder.is_dir() => Ok(self),
                    _ => Err(DumpProblem::NoFolder.into_io(Some(path))),
                }
            }
            Err(error) => Err(DumpProblem::Read(error).into_io(Some(path))),
            Ok(mut file) => {
                self.read_dump(&mut file).map_err(|problem| problem.into_io(Some(path)))
            }
        }
    }

    fn read_dump(self, input: &mut dyn Read) -> Result<Self, DumpProblem> {
        let mut reader = DumpReader::begin(input)?;
        let (hasher, begun) = read_store(&reader.block()?)?;
        let store = Self { hasher, shards: Shards::new(self.max_keys), ..self };
        // What evictions compare does not depend on an exact time. The time of the end is not known
        // yet.
        let now = store.now().max(begun);
        let mut buckets = 0_u64;
        let end = loop {
            let block = reader.block()?;
            match block.kind {
                BlockKind::Store => return Err(block.wrong("describes the store again")),
                BlockKind::End => break read_end(&block)?,
                BlockKind::Buckets => {
                    let count = read_batch(block.content, |tag, bucket, state| {
                        match store.shards.take_in(tag, bucket, state, now) {
                            true => Ok(()),
                            false => Err("has a bucket that was there before"),
                        }
                    });
                    let count = count.map_err(|what| block.wrong(what))?;
                    buckets = buckets.saturating_add(count.into());
                }
            }
        };
        if end.buckets != buckets {
            return Err(DumpProblem::Content { at: end.at, what: "counts other buckets" });
        }
        reader.end()?;
        store.shards.continue_resets(end.resets);
        Ok(store.not_before(end.time.max(begun)))
    }
}

/// The last block of a dump.
struct DumpEnd {
    at: u64,
    time: Timestamp,
    buckets: u64,
    resets: u64,
}

/// The hash of the saved store, and its time when the dump was begun.
fn read_store(block: &DumpBlock<'_>) -> Result<(Hasher, Timestamp), DumpProblem> {
    let mut fields = Fields::new(block.content);
    let mut words = [0; HASHER_WORDS];
    let begun = fields.timestamp();
    let filled = words.iter_mut().all(|word| fields.u64().map(|read| *word = read).is_some());
    let (Some(begun), true, Some(number), true) =
        (begun, filled, fields.u64(), fields.is_empty() && block.kind == BlockKind::Store)
    else {
        return Err(block.wrong("does not describe a store"));
    };
    let hasher = Hasher::from_words(words);
    if probe::number(&hasher) != number {
        return Err(DumpProblem::OtherNames);
    }
    Ok((hasher, begun))
}

fn read_end(block: &DumpBlock<'_>) -> Result<DumpEnd, DumpProblem> {
    let mut fields = Fields::new(block.content);
    match (fields.timestamp(), fields.u64(), fields.u64(), fields.is_empty()) {
        (Some(time), Some(buckets), Some(resets), true) => {
            Ok(DumpEnd { at: block.at, time, buckets, resets })
        }
        _ => Err(block.wrong("is not an end mark")),
    }
}
