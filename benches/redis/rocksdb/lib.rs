//! The names that limitador's disk storage wants, and no database.
//!
//! limitador 0.14 compiles its Redis storage only together with its disk storage, as one module
//! of the former is declared under the feature of the latter. The real crate behind it compiles a
//! database in C++. As nothing is ever stored on disk here, one that cannot exist does as well.

use std::convert::Infallible;
use std::fmt;
use std::marker::PhantomData;
use std::path::Path;

pub type DB = DBWithThreadMode<MultiThreaded>;

pub struct MultiThreaded;

/// A database that cannot be opened.
pub struct DBWithThreadMode<T> {
    never: Infallible,
    mode: PhantomData<T>,
}

type Bytes = Box<[u8]>;
type Entries = std::iter::Empty<Result<(Bytes, Bytes), Error>>;

impl<T> DBWithThreadMode<T> {
    pub fn open<P: AsRef<Path>>(_: &Options, _: P) -> Result<Self, Error> {
        Err(Error)
    }

    pub fn get<K: AsRef<[u8]>>(&self, _: K) -> Result<Option<Vec<u8>>, Error> {
        match self.never {}
    }

    pub fn merge<K: AsRef<[u8]>, V: AsRef<[u8]>>(&self, _: K, _: V) -> Result<(), Error> {
        match self.never {}
    }

    pub fn delete<K: AsRef<[u8]>>(&self, _: K) -> Result<(), Error> {
        match self.never {}
    }

    pub fn iterator(&self, _: IteratorMode) -> Entries {
        match self.never {}
    }

    pub fn prefix_iterator<P: AsRef<[u8]>>(&self, _: P) -> Entries {
        match self.never {}
    }
}

#[derive(Debug)]
pub struct Error;

impl Error {
    pub fn kind(&self) -> ErrorKind {
        ErrorKind::TryAgain
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no database was linked")
    }
}

impl std::error::Error for Error {}

#[derive(PartialEq, Eq)]
pub enum ErrorKind {
    TimedOut,
    TryAgain,
}

pub enum IteratorMode {
    Start,
}

pub enum DBCompressionType {
    None,
    Bz2,
}

pub enum CompactionDecision {
    Keep,
    Remove,
}

#[derive(Default)]
pub struct Options;

impl Options {
    pub fn create_if_missing(&mut self, _: bool) {}

    pub fn set_compression_type(&mut self, _: DBCompressionType) {}

    pub fn set_compaction_filter<F>(&mut self, _: &str, _: F)
    where
        F: FnMut(u32, &[u8], &[u8]) -> CompactionDecision,
    {
    }

    pub fn set_merge_operator_associative<F>(&mut self, _: &str, _: F)
    where
        F: Fn(&[u8], Option<&[u8]>, &MergeOperands) -> Option<Vec<u8>>,
    {
    }
}

pub struct MergeOperands;

impl<'a> IntoIterator for &'a MergeOperands {
    type Item = &'a [u8];
    type IntoIter = std::iter::Empty<&'a [u8]>;

    fn into_iter(self) -> Self::IntoIter {
        std::iter::empty()
    }
}
