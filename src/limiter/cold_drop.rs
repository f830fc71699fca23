//! A value whose destructor is a call of its own.

use std::mem::{self, ManuallyDrop};
use std::ops::{Deref, DerefMut};

/// Drops its value out of line.
///
/// Nearly all calls and permits are on one bucket, and are dropped where users have written the call.
/// The destructors of the others would lie there as well, or else the compiler would call a function
/// that saves registers for them.
pub(super) struct ColdDrop<T: Default>(ManuallyDrop<T>);

impl<T: Default> ColdDrop<T> {
    pub(super) const fn new(value: T) -> Self {
        Self(ManuallyDrop::new(value))
    }
}

impl<T: Default> Deref for ColdDrop<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Default> DerefMut for ColdDrop<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl<T: Default> Drop for ColdDrop<T> {
    #[inline(always)]
    fn drop(&mut self) {
        drop_out_of_line(&mut *self.0);
    }
}

#[cold]
#[inline(never)]
fn drop_out_of_line<T: Default>(value: &mut T) {
    drop(mem::take(value));
}
