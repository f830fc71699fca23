//! The file of a store: a redb database with a table of buckets, and the time of the last commit.

use std::error::Error;
use std::fs;
use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};
use std::time::{Duration, Instant};

use redb::{
    Builder, Database, ReadOnlyTable, ReadableDatabase as _, ReadableTableMetadata as _,
    TableDefinition, TableHandle as _,
};

use super::NAME;
use super::creation::create;
use super::sweep::Sweep;
use tollgate::backend::{BackendError, BucketRecord};
use tollgate::clock::Timestamp;
use tollgate_kit::debtors::{KeyRange, SortedEntry};
use tollgate_kit::hashed::PrehashedMap;
use tollgate_kit::key_name::KeyName;
use tollgate_kit::stored::{decode_record, encode_record, read_bucket_name};

/// The records of the buckets, by their names.
const BUCKETS: TableDefinition<'static, &str, &[u8]> = TableDefinition::new("tollgate buckets");

/// The time of the last commit, in microseconds since the Unix epoch.
const TIME: TableDefinition<'static, (), i64> = TableDefinition::new("tollgate time");

/// The memory for pages of the file, in bytes.
const CACHE: usize = 64 << 20;

/// A file with more bytes for each bucket is compacted when it is opened. A full page has some 50
/// buckets with short keys, and a page is at least a third full.
const BYTES_PER_BUCKET: u64 = 1_024;

/// A file of at most so many bytes is not compacted.
const SMALL_FILE: u64 = 4 << 20;

/// How long a file that could not be opened again is left alone.
const REOPEN_AFTER: Duration = Duration::from_millis(100);

/// The buckets that decisions have changed, by their names; `None` for one that was reset.
pub(super) type BucketChanges = PrehashedMap<KeyName, Option<BucketRecord>>;

/// The file of a store, which this process alone has open.
#[derive(Debug)]
pub(super) struct BucketFile {
    path: PathBuf,
    state: RwLock<FileState>,
}

#[derive(Debug)]
enum FileState {
    Open(Database),
    /// After a failed write, the database has to be opened again. It was last tried then.
    Closed(Option<(Instant, BackendError)>),
}

/// The buckets of the file as they are after a commit.
pub(super) struct BucketReader(ReadOnlyTable<&'static str, &'static [u8]>);

impl BucketReader {
    /// Reads a bucket.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or holds something else under this name.
    pub(super) fn get(&self, name: &str) -> Result<Option<BucketRecord>, BackendError> {
        let Some(value) = self.0.get(name).map_err(failure)? else { return Ok(None) };
        decode_record(value.value()).map(Some).map_err(|wrong| {
            let cause = format!("the value of `{name}` is not a bucket: {wrong}");
            BackendError::undecidable(NAME, cause)
        })
    }
}

impl BucketReader {
    /// The buckets of a limit in a range, by the order of their names, as far as `max` entries of the
    /// file; and the last name, if more may come.
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub(super) fn list(
        &self,
        limit: &str,
        range: &KeyRange,
        max: usize,
    ) -> Result<(Vec<SortedEntry>, Option<Vec<u8>>), BackendError> {
        let ends = [&range.first, &range.behind].map(|end| String::from_utf8_lossy(end));
        let [first, behind] = &ends;
        let mut entries = Vec::new();
        for entry in self.0.range::<&str>(&**first..&**behind).map_err(failure)?.take(max) {
            let (name, value) = entry.map_err(failure)?;
            let name = name.value();
            // What is no bucket is not in debt: calls on it fail, and say so.
            let record = decode_record(value.value()).ok();
            let bucket = read_bucket_name(limit, name).zip(record);
            entries.push((name.as_bytes().to_vec(), bucket));
        }
        let last = entries.last().filter(|_| entries.len() >= max).map(|(name, _)| name.clone());
        Ok((entries, last))
    }
}

impl BucketFile {
    /// Opens the file, or creates it.
    pub(super) fn open(path: &Path) -> Result<Self, BackendError> {
        let state = RwLock::new(FileState::Open(open_database(path)?));
        Ok(Self { path: path.to_owned(), state })
    }

    /// The buckets as they are now.
    pub(super) fn reader(&self) -> Result<BucketReader, BackendError> {
        self.with(|database| {
            let table = database.begin_read().map_err(failure)?.open_table(BUCKETS);
            Ok(BucketReader(table.map_err(failure)?))
        })
    }

    /// The time of the last commit, if there was one.
    pub(super) fn last_commit(&self) -> Result<Option<Timestamp>, BackendError> {
        self.with(|database| {
            let transaction = database.begin_read().map_err(failure)?;
            let table = match transaction.open_table(TIME) {
                Err(redb::TableError::TableDoesNotExist(_)) => return Ok(None),
                table => table.map_err(failure)?,
            };
            let time = table.get(()).map_err(failure)?;
            Ok(time.map(|time| Timestamp::from_micros(time.value())))
        })
    }

    /// Writes changes, and waits until they are on the disk.
    pub(super) fn commit(
        &self,
        changes: &BucketChanges,
        now: Timestamp,
        sweep: &mut Sweep,
    ) -> Result<(), BackendError> {
        self.with(|database| {
            let transaction = database.begin_write().map_err(failure)?;
            let mut table = transaction.open_table(BUCKETS).map_err(failure)?;
            for (name, record) in changes {
                match record {
                    Some(record) => table.insert(name.as_str(), encode_record(record).as_slice()),
                    None => table.remove(name.as_str()),
                }
                .map_err(failure)?;
            }
            sweep.pass(&mut table, changes.len(), now).map_err(failure)?;
            drop(table);
            let mut time = transaction.open_table(TIME).map_err(failure)?;
            time.insert((), now.as_micros()).map_err(failure)?;
            drop(time);
            transaction.commit().map_err(failure)
        })
    }

    /// Closes the database after a failure, so that the next use opens and repairs it.
    pub(super) fn close(&self) {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        *state = FileState::Closed(None);
    }

    /// Uses the database, which is opened again if it was closed.
    fn with<T>(
        &self,
        work: impl FnOnce(&Database) -> Result<T, BackendError>,
    ) -> Result<T, BackendError> {
        // A lock is poisoned if the database has panicked. The state itself is whole.
        if let FileState::Open(database) =
            &*self.state.read().unwrap_or_else(PoisonError::into_inner)
        {
            return work(database);
        }
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        if let FileState::Closed(tried) = &*state {
            if let Some((at, error)) = tried
                && at.elapsed() < REOPEN_AFTER
            {
                return Err(error.clone());
            }
            *state = match open_database(&self.path) {
                Ok(database) => FileState::Open(database),
                Err(error) => FileState::Closed(Some((Instant::now(), error))),
            };
        }
        match &*state {
            FileState::Open(database) => work(database),
            FileState::Closed(Some((_, error))) => Err(error.clone()),
            FileState::Closed(None) => Err(BackendError::internal(NAME, "the file is closed")),
        }
    }
}

fn open_database(path: &Path) -> Result<Database, BackendError> {
    if !path.exists() {
        let fill = |draft: &Path| prepare(&Builder::new().create(draft)?).map(drop);
        create(path, fill).map_err(|error| open_failure(path, error))?;
    }
    // The database may panic on a file that another program has damaged.
    let opened = catch_unwind(AssertUnwindSafe(|| {
        let mut database = Builder::new()
            .set_cache_size(CACHE)
            .set_check_integrity_on_open(true)
            .create(path)
            .map_err(redb::Error::from)?;
        if !prepare(&database)? {
            return Ok(None);
        }
        compact(&mut database, path)?;
        Ok(Some(database))
    }));
    match opened {
        Ok(Ok(Some(database))) => Ok(database),
        Ok(Ok(None)) => Err(foreign(path, "it is the database of another program")),
        Ok(Err(error)) => Err(open_failure(path, error)),
        Err(_) => Err(damaged(path, "it could not be read")),
    }
}

/// Creates the table in a new database. Returns false for a database with other tables.
fn prepare(database: &Database) -> Result<bool, redb::Error> {
    let transaction = database.begin_read()?;
    let (mut has_table, mut has_others) = (false, false);
    for table in transaction.list_tables()? {
        has_table |= table.name() == BUCKETS.name();
        has_others |= ![BUCKETS.name(), TIME.name()].contains(&table.name());
    }
    has_others |= transaction.list_multimap_tables()?.next().is_some();
    if has_table && !has_others {
        // An error if its types are different.
        drop(transaction.open_table(BUCKETS)?);
        return Ok(true);
    }
    drop(transaction);
    if has_others {
        return Ok(false);
    }
    let transaction = database.begin_write()?;
    drop(transaction.open_table(BUCKETS)?);
    transaction.commit()?;
    Ok(true)
}

/// Gives the space back that a flood of keys has taken.
fn compact(database: &mut Database, path: &Path) -> Result<(), redb::Error> {
    let buckets = database.begin_read()?.open_table(BUCKETS)?.len()?;
    let most = SMALL_FILE.max(buckets.saturating_mul(BYTES_PER_BUCKET));
    if fs::metadata(path)?.len() > most {
        database.compact()?;
    }
    Ok(())
}

/// The error of a file that could not be opened.
fn open_failure(path: &Path, error: redb::Error) -> BackendError {
    let path_text = path.display();
    let wrong = match error {
        redb::Error::DatabaseAlreadyOpen | redb::Error::LockProtocolMismatch => format!(
            "`{path_text}` is open in another process, or in another store of this one (clone the \
             store within a process, and give each process a file of its own; processes that share \
             their limits need a server, such as Redis)"
        ),
        redb::Error::UpgradeRequired(_) | redb::Error::TableTypeMismatch { .. } => {
            return foreign(path, "it is a database in another format");
        }
        redb::Error::TableIsMultimap(_) | redb::Error::TypeDefinitionChanged { .. } => {
            return foreign(path, "it is a database in another format");
        }
        redb::Error::Corrupted(what) => return damaged(path, &what),
        redb::Error::Io(error) => match error.kind() {
            ErrorKind::InvalidData | ErrorKind::UnexpectedEof => {
                return foreign(path, "it is not a database");
            }
            ErrorKind::NotFound => format!(
                "`{path_text}` cannot be created, as its directory does not exist (create the \
                 directory)"
            ),
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => format!(
                "`{path_text}` cannot be written to: {error} (let this user write to the file and \
                 to its directory, or choose another one)"
            ),
            ErrorKind::IsADirectory | ErrorKind::NotADirectory => {
                format!("`{path_text}` cannot be a file: {error} (name a file in a directory)")
            }
            _ => return failure(redb::Error::Io(error)),
        },
        other => return failure(other),
    };
    BackendError::misconfigured(NAME, wrong)
}

fn foreign(path: &Path, what: &str) -> BackendError {
    let wrong = format!(
        "`{}` is not a file of this store: {what} (choose another file; this one was not changed)",
        path.display()
    );
    BackendError::misconfigured(NAME, wrong)
}

fn damaged(path: &Path, what: &str) -> BackendError {
    let wrong = format!(
        "`{}` is damaged: {what} (restore it, or move it away: then all buckets start full)",
        path.display()
    );
    BackendError::misconfigured(NAME, wrong)
}

/// The error of a file that was open.
pub(super) fn failure(error: impl Into<redb::Error>) -> BackendError {
    match error.into() {
        redb::Error::Io(error) => match error.kind() {
            ErrorKind::StorageFull | ErrorKind::FileTooLarge | ErrorKind::QuotaExceeded => {
                let cause = format!("{error} (free some space: the store then recovers by itself)");
                BackendError::full(NAME, cause)
            }
            _ => BackendError::unavailable(NAME, error),
        },
        redb::Error::Corrupted(what) => {
            let wrong = format!(
                "the file is damaged: {what} (restore it, or move it away: then all buckets start \
                 full)"
            );
            BackendError::misconfigured(NAME, wrong)
        }
        // Of an error before this one, which says by itself whether it is an outage. The file is opened
        // again then.
        redb::Error::PreviousIo | redb::Error::DatabaseClosed => BackendError::contended(NAME, 1),
        other => BackendError::unavailable(NAME, Box::<dyn Error + Send + Sync>::from(other)),
    }
}
