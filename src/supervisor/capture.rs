//! Keeping the beginning and the end of a stream in bounded memory.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};

use crate::outcome::Stream;

/// What a run wrote last, for whoever wants to look at it meanwhile. Clones look at the same.
#[derive(Debug, Clone, Default)]
pub struct Newest(Arc<Mutex<Vec<u8>>>);

impl Newest {
    /// Bytes that are kept: enough for a line that people read.
    const ROOM: usize = 1 << 10;

    /// The newest line that is not blank, or as much of its end as is kept. A carriage return ends
    /// a line too: progress bars write nothing else.
    #[must_use]
    pub fn line(&self) -> Vec<u8> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut lines = kept.rsplit(|byte| matches!(byte, b'\n' | b'\r'));
        let line = lines.find(|line| !line.trim_ascii().is_empty());
        line.unwrap_or_default().trim_ascii().to_vec()
    }

    /// Shows a line that is not the payload's.
    pub fn show(&self, line: &str) {
        self.push(line.as_bytes());
        self.push(b"\n");
    }

    fn push(&self, bytes: &[u8]) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = &bytes[bytes.len().saturating_sub(Self::ROOM)..];
        let surplus = (kept.len() + bytes.len()).saturating_sub(Self::ROOM);
        kept.drain(..surplus);
        kept.extend_from_slice(bytes);
    }
}

/// Head and tail of a stream, half of the room each. Nothing is lost of a stream that fits.
#[derive(Debug)]
pub(crate) struct Capture {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    half: usize,
    bytes: u64,
    newest: Option<Newest>,
}

impl Capture {
    /// Room for `room` bytes; memory is taken only as it is needed.
    pub(crate) fn new(room: usize) -> Self {
        Self { head: Vec::new(), tail: VecDeque::new(), half: room / 2, bytes: 0, newest: None }
    }

    /// The same, and what comes is shown in `newest`.
    pub(crate) fn watched(self, newest: Option<Newest>) -> Self {
        Self { newest, ..self }
    }

    /// How many bytes came in all.
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes what came next.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        if let Some(newest) = &self.newest {
            newest.push(bytes);
        }
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

    /// Takes what is in a pipe now and waits for nothing, not for the end of what somebody goes on to write.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn drain(&mut self, from: &OwnedFd) -> nix::Result<()> {
        let room = fcntl(from, FcntlArg::F_GETPIPE_SZ)?;
        let most = self.bytes + u64::try_from(room).unwrap_or(0);
        while self.bytes < most {
            let before = self.bytes;
            if !self.fill(from)? || self.bytes == before {
                break;
            }
        }
        Ok(())
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
    fn the_newest_line_is_shown() {
        let newest = Newest::default();
        let mut streams = [0, 1].map(|_| Capture::new(8).watched(Some(newest.clone())));
        assert_eq!(newest.line(), b"");
        for (stream, bytes, line) in [
            (0, "one\ntw", "tw"),
            (0, "o\n\n  \n", "two"),
            (1, " 10 %\r 20 %\r", "20 %"),
            (0, &"x".repeat(5000), &"x".repeat(1024)),
            (1, "\nlast\r\n", "last"),
        ] {
            streams[stream].push(bytes.as_bytes());
            assert_eq!(newest.line(), line.as_bytes());
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
