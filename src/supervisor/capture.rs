//! Keeping the beginning and the end of a stream in bounded memory.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use nix::errno::Errno;

use crate::outcome::Stream;

/// Head and tail of a stream, half of the room each. Nothing is lost of a stream that fits.
#[derive(Debug)]
pub(crate) struct Capture {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    half: usize,
    bytes: u64,
}

impl Capture {
    /// Room for `room` bytes; memory is taken only as it is needed.
    pub(crate) fn new(room: usize) -> Self {
        Self { head: Vec::new(), tail: VecDeque::new(), half: room / 2, bytes: 0 }
    }

    /// How many bytes came in all.
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes what came next.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        let (head, rest) = bytes.split_at(bytes.len().min(self.half - self.head.len()));
        self.head.extend_from_slice(head);
        // Of the rest only the last `half` bytes can stay.
        let rest = &rest[rest.len().saturating_sub(self.half)..];
        let surplus = (self.tail.len() + rest.len()).saturating_sub(self.half);
        self.tail.drain(..surplus);
        self.tail.extend(rest);
    }

    /// Takes what can be read at once, one piece of it. Whether there may be more to come.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn fill(&mut self, from: &OwnedFd) -> nix::Result<bool> {
        let mut buffer = [0; 16 << 10];
        match nix::unistd::read(from, &mut buffer) {
            Ok(0) => Ok(false),
            Ok(length) => {
                self.push(&buffer[..length]);
                Ok(true)
            }
            Err(Errno::EAGAIN | Errno::EINTR) => Ok(true),
            Err(errno) => Err(errno),
        }
    }

    /// Takes what is in a pipe now and waits for nothing.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn drain(&mut self, from: &OwnedFd) -> nix::Result<()> {
        loop {
            let before = self.bytes;
            if !self.fill(from)? || self.bytes == before {
                return Ok(());
            }
        }
    }

    /// What was kept; what comes next is kept anew.
    pub(crate) fn take(&mut self) -> Stream {
        let anew = Self::new(self.half * 2);
        std::mem::replace(self, anew).finish()
    }

    /// What was kept.
    pub(crate) fn finish(self) -> Stream {
        let Self { mut head, tail, bytes, .. } = self;
        let mut tail = Vec::from(tail);
        if (head.len() + tail.len()) as u64 == bytes {
            head.append(&mut tail);
        }
        Stream { head, tail, bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capture(room: usize, parts: &[&[u8]]) -> Stream {
        let mut capture = Capture::new(room);
        parts.iter().for_each(|part| capture.push(part));
        capture.finish()
    }

    #[test]
    fn what_fits_is_kept_whole() {
        for parts in [&[b"abcdefgh".as_slice()][..], &[b"abc", b"d", b"", b"efgh"]] {
            let stream = capture(8, parts);
            assert_eq!((stream.head.as_slice(), stream.left_out()), (&b"abcdefgh"[..], 0));
            assert!(stream.tail.is_empty());
        }
    }

    #[test]
    fn head_and_tail_are_kept_of_what_does_not() {
        for parts in [&[b"abcdefghijkl".as_slice()][..], &[b"abcdef", b"ghi", b"jkl"]] {
            let stream = capture(8, parts);
            assert_eq!(
                (stream.head.as_slice(), stream.tail.as_slice()),
                (&b"abcd"[..], &b"ijkl"[..])
            );
            assert_eq!((stream.bytes, stream.left_out()), (12, 4));
        }
    }

    #[test]
    fn memory_stays_flat_whatever_comes() {
        let mut capture = Capture::new(1024);
        for _ in 0..1000 {
            capture.push(&[b'y'; 64 << 10]);
        }
        assert!(capture.head.capacity() + capture.tail.capacity() <= 4 * 1024);
        assert_eq!(capture.bytes(), 1000 * (64 << 10));
    }
}
