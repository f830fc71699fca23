//! Saving a store.

use std::io::{self, Write};
use std::path::Path;

use super::dump_error::DumpProblem;
use super::replacement::replace;
use super::writer::DumpWriter;
use crate::backend::memory::Memory;
use crate::backend::memory::shard::is_idle;
use crate::backend::memory::shard_copy::ShardCopy;

/// Saving the buckets, for the next process to [load](Self::load_or_empty).
impl Memory {
    /// Writes all buckets to a stream: a *dump*.
    ///
    /// Decisions go on meanwhile. Each shard is locked alone and for as long as its buckets (some
    /// 1,000) are copied, and no lock is held while bytes are written. So each bucket is in the
    /// dump as it was at one instant between the call and its end. These instants differ: of a
    /// request on several limits, the dump may have what it took of one, and not of another. No
    /// bucket is in the dump with more than it held when the call began, other than by its own
    /// refill and by what came back to it.
    ///
    /// A dump takes 32 bytes a bucket. It has no names of limits and no keys of clients, but the
    /// secret of the store's hash: a client that learns it can choose keys that slow the store
    /// down. Buckets that are full again are left out, which changes no answer.
    ///
    /// Requests that [wait](crate::limiter::LimitCall::reserve) are not in the dump, and their
    /// tokens stay taken: see [`load`](Self::load). Requests [in flight](crate::Quota::in_flight) end
    /// with the process, so their buckets are left out, unless their tokens are [lost after a
    /// time](crate::Quota::lost_after).
    ///
    /// # Errors
    ///
    /// If the stream fails.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::backend::Memory;
    /// use tollgate::{DAY, Limit, Quota, RateLimiter};
    /// use std::sync::Arc;
    ///
    /// const REPORTS: Limit = Limit::new("reports", Quota::token_bucket(3, DAY));
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let memory = Arc::new(Memory::new());
    /// let limiter = RateLimiter::new(Arc::clone(&memory));
    /// limiter.limit(&REPORTS).key("alice").cost(2).await?;
    ///
    /// let mut dump = Vec::new();
    /// memory.save(&mut dump)?;
    /// let limiter = RateLimiter::new(Memory::new().load(dump.as_slice())?); // in another process
    /// assert_eq!(limiter.peek(&REPORTS).key("alice").await?.remaining(), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn save(&self, mut dump: impl Write) -> io::Result<()> {
        self.write_dump(&mut dump).map_err(|error| DumpProblem::Write(error).into_io(None))
    }

    /// Writes all buckets to a file, as [`save`](Self::save) does, in place of what it held.
    ///
    /// The file has the old content or the new one at any time, also if the process is killed or
    /// the machine crashes. The bytes go to a draft beside the file, which is persisted and then
    /// renamed. Only the user of the process can read the file. A link is followed. A process that
    /// is killed may leave a draft, whose name ends in `.draft`; the first save to the same file that
    /// is ten minutes later removes it.
    ///
    /// This blocks, for some milliseconds and more with many buckets: in a task, call it by
    /// [`spawn_blocking`](tokio::task::spawn_blocking). Calls on one store take turns, so that the
    /// last one to begin is the one whose dump stays. Two stores must not save to one file.
    ///
    /// # Errors
    ///
    /// If the file cannot be written: the disk is full, say, or the path is a folder. The file then
    /// is as it was. Also if the file is written, but its folder cannot be persisted. The file then
    /// has the new dump, and after a crash of the machine perhaps the old one. The message says
    /// which it is.
    ///
    /// # Examples
    ///
    /// See [`load_or_empty`](Self::load_or_empty).
    pub fn save_to(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let path = path.as_ref();
        let _turn = self.saving.lock();
        replace(path, |file| self.write_dump(file)).map_err(|problem| problem.into_io(Some(path)))
    }

    fn write_dump(&self, output: &mut dyn Write) -> io::Result<()> {
        let mut writer = DumpWriter::begin(output, &self.hasher, self.now())?;
        let (mut copy, mut resets) = (ShardCopy::default(), 0);
        for shard in self.shards.iter() {
            let now = {
                let shard = shard.lock();
                copy.take(&shard);
                resets = shard.resets.count().max(resets);
                self.now()
            };
            for (tag, bucket, state) in copy.buckets() {
                // The requests in flight end with this process.
                if !is_idle(bucket, state, now) && !bucket.never_gains() {
                    writer.add(tag, bucket, state)?;
                }
            }
        }
        writer.end(self.now(), resets)
    }
}
