//! Choices read out of bytes, so that what mutates bytes mutates choices.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

/// Where the bytes end, every choice is the first.
pub(super) struct Dice<'a>(&'a [u8]);

impl<'a> Dice<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(super) fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    pub(super) fn bytes(&mut self, most: usize) -> &'a [u8] {
        let length = usize::from(self.byte()).min(most).min(self.0.len());
        let (taken, rest) = self.0.split_at(length);
        self.0 = rest;
        taken
    }

    pub(super) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::from(self.byte()) % from.len()]
    }

    /// Mostly a number at some border, else any.
    pub(super) fn number(&mut self, borders: &[u64]) -> u64 {
        match self.byte() % 4 {
            0 => self.pick(borders),
            1 => self.pick(borders).wrapping_add(1),
            2 => self.pick(borders).wrapping_sub(1),
            _ => (0..8).fold(0, |number, _| number << 8 | u64::from(self.byte())),
        }
    }

    pub(super) fn text(&mut self) -> OsString {
        OsString::from_vec(self.bytes(24).to_vec())
    }
}
