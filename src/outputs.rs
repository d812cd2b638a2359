//! The long output of a server's runs, kept for its later sandboxes to read.
//!
//! The directory is that of a tmpfs which every sandbox of the server shows, read-only, at
//! [`OUTPUTS`]; see [`crate::engine`]. Only output that a model cannot be shown whole is kept, as much
//! of it as its run's supervisor kept, and of that the newest.
//!
//! Every file stays open here. So none is found again by its name, what is dropped is emptied also
//! where a sandbox holds it open, and no sandbox can take a lease on it that would make this
//! process wait (fcntl(2): there is none on a file that is open for writing).

use std::collections::VecDeque;
use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;
use nix::unistd::{Gid, Uid, UnlinkatFlags, setfsgid, setfsuid, unlinkat};

use crate::outcome::{INLINE, Outcome, Stream};
use crate::plan::{Ids, OUTPUTS};

/// Bytes that are kept of all runs together.
const MOST: u64 = 64 << 20;
/// Files that are kept; each is an open descriptor.
const MOST_FILES: usize = 128;

/// What is kept.
#[derive(Debug)]
pub struct Outputs {
    directory: Mutex<OwnedFd>,
    owner: Ids,
    shelf: Mutex<Shelf>,
}

/// One kept stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// Its file's name, as `7.stdout`.
    pub name: String,
    /// How long the file is.
    pub bytes: u64,
    /// Which part of the stream it has, and of how much, if that is not all.
    pub part: Option<String>,
}

#[derive(Debug, Default)]
struct Shelf {
    runs: u64,
    /// The oldest first.
    files: VecDeque<(Kept, File)>,
}

impl Outputs {
    /// Nothing yet. `directory` is empty and belongs to `owner`.
    #[must_use]
    pub fn new(directory: OwnedFd, owner: Ids) -> Self {
        Self { directory: Mutex::new(directory), owner, shelf: Mutex::default() }
    }

    /// The directory was lost with all that lay in it; `directory` takes its place.
    pub fn begin_anew(&self, directory: OwnedFd) {
        let mut shelf = self.shelf();
        *self.directory() = directory;
        shelf.files.clear();
    }

    /// Counts one run, keeps what of its output is too long to be shown, and notes in it where.
    ///
    /// What cannot be kept is only missing: the run is told all the same.
    pub fn keep(&self, outcome: &mut Outcome) {
        let Outcome { stdout, stderr, files, .. } = outcome;
        let mut shelf = self.shelf();
        shelf.runs += 1;
        let run = shelf.runs;
        if room(stdout) + room(stderr) <= INLINE as u64 {
            return;
        }
        for (stream, place, kind) in
            [(stdout, &mut files.stdout, "stdout"), (stderr, &mut files.stderr, "stderr")]
        {
            // Half of the room is each stream's own.
            if room(stream) <= INLINE as u64 / 2 {
                continue;
            }
            let name = format!("{run}.{kind}");
            match self.store(&mut shelf, &name, stream) {
                Ok(()) => *place = Some(format!("{OUTPUTS}/{name}")),
                Err(error) => tracing::warn!(name, %error, "long output not kept"),
            }
        }
    }

    /// What is kept, the oldest first.
    #[must_use]
    pub fn list(&self) -> Vec<Kept> {
        self.shelf().files.iter().map(|(kept, _)| kept.clone()).collect()
    }

    /// The content of one file; `None` if there is none of that name (any more).
    #[must_use]
    pub fn read(&self, name: &str) -> Option<Vec<u8>> {
        let shelf = self.shelf();
        let (kept, file) = shelf.files.iter().find(|(kept, _)| kept.name == name)?;
        let mut bytes = vec![0; usize::try_from(kept.bytes).ok()?];
        file.read_exact_at(&mut bytes, 0).ok()?;
        Some(bytes)
    }

    fn store(&self, shelf: &mut Shelf, name: &str, stream: &Stream) -> std::io::Result<()> {
        let bytes = stream.to_bytes();
        let length = bytes.len() as u64;
        while shelf.files.len() >= MOST_FILES || shelf.bytes() + length > MOST {
            let Some((oldest, file)) = shelf.files.pop_front() else { break };
            self.remove(&oldest.name, &file);
        }
        let mut file = self.create(name)?;
        if let Err(error) = file.write_all(&bytes) {
            self.remove(name, &file);
            return Err(error);
        }
        let part = stream.ends().map(|ends| format!("{ends} of {} bytes", stream.bytes));
        let kept = Kept { name: name.to_owned(), bytes: length, part };
        shelf.files.push_back((kept, file));
        Ok(())
    }

    fn create(&self, name: &str) -> std::io::Result<File> {
        let flags = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_RDWR | OFlag::O_CLOEXEC;
        let mode = Mode::from_bits_truncate(0o444);
        Ok(self.as_owner(|| openat(&*self.directory(), name, flags, mode))?.into())
    }

    fn remove(&self, name: &str, file: &File) {
        // Both best effort: what stays lies in a tmpfs of bounded size.
        let _ = file.set_len(0);
        let _ = self.as_owner(|| unlinkat(&*self.directory(), name, UnlinkatFlags::NoRemoveDir));
    }

    /// Root is unknown to the file system's user namespace, and can make no file there (EOVERFLOW).
    /// These ids are this thread's alone (setfsuid(2)).
    fn as_owner<T>(&self, work: impl FnOnce() -> T) -> T {
        let gid = setfsgid(Gid::from_raw(self.owner.gid));
        let uid = setfsuid(Uid::from_raw(self.owner.uid));
        let result = work();
        setfsuid(uid);
        setfsgid(gid);
        result
    }

    fn directory(&self) -> MutexGuard<'_, OwnedFd> {
        self.directory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shelf {
    fn bytes(&self) -> u64 {
        self.files.iter().map(|(kept, _)| kept.bytes).sum()
    }
}

/// The most room that a stream can need where it is shown as harmless text: a control character is
/// shown by four, and what is not ASCII may be one or no UTF-8 at all.
fn room(stream: &Stream) -> u64 {
    if stream.bytes > INLINE as u64 {
        return stream.bytes;
    }
    let room = |byte: &u8| match byte {
        b'\t' | b'\n' | b' '..=b'~' => 1,
        0..=0x7f => 4,
        0x80.. => 3,
    };
    stream.head.iter().chain(&stream.tail).map(room).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::{Ending, Enforced, Files, Usage};

    fn outputs(directory: &tempfile::TempDir) -> Outputs {
        let owner = Ids { uid: Uid::effective().as_raw(), gid: Gid::effective().as_raw() };
        Outputs::new(File::open(directory.path()).expect("directory").into(), owner)
    }

    fn outcome(stdout: &[u8], stderr: &[u8]) -> Outcome {
        let stream = |bytes: &[u8]| Stream {
            head: bytes.to_vec(),
            tail: Vec::new(),
            bytes: bytes.len() as u64,
        };
        Outcome {
            order: crate::outcome::Order::default(),
            ending: Ending::Exited { code: 0 },
            stdout: stream(stdout),
            stderr: stream(stderr),
            usage: Usage::default(),
            enforced: Enforced::default(),
            session: None,
            files: Files::default(),
        }
    }

    fn kept(outputs: &Outputs, stdout: &[u8], stderr: &[u8]) -> [Option<String>; 2] {
        let mut outcome = outcome(stdout, stderr);
        outputs.keep(&mut outcome);
        [outcome.files.stdout, outcome.files.stderr]
    }

    #[test]
    fn only_what_is_too_long_is_kept_under_the_number_of_its_run() {
        let directory = tempfile::tempdir().expect("directory");
        let outputs = outputs(&directory);
        assert_eq!(kept(&outputs, &[b'x'; INLINE - 5], b"e\0"), [None, None]);
        let named = |name: &str| Some(format!("/outputs/{name}"));
        assert_eq!(kept(&outputs, &[b'x'; INLINE + 1], b"e"), [named("2.stdout"), None]);
        // Shown as `\x00` they are too long.
        assert_eq!(kept(&outputs, &[0; 3000], b""), [named("3.stdout"), None]);
        let long = [b'x'; INLINE];
        assert_eq!(kept(&outputs, &long, &long), [named("4.stdout"), named("4.stderr")]);
        let names: Vec<String> = outputs.list().into_iter().map(|kept| kept.name).collect();
        assert_eq!(names, ["2.stdout", "3.stdout", "4.stdout", "4.stderr"]);
        assert_eq!(outputs.read("3.stdout").expect("bytes"), [0; 3000]);
        assert_eq!(outputs.read("1.stdout"), None);
        assert_eq!(outputs.read("../x"), None);
    }

    #[test]
    fn whatever_needs_no_place_is_shown_whole() {
        for bytes in ["\u{e0041}".repeat(1000), "\u{9b}".repeat(2000), "\u{202e}€\x1b".repeat(900)]
        {
            let stream = outcome(bytes.as_bytes(), b"").stdout;
            let shown = crate::mcp::text::shape(&stream, 1 << 20, None).text;
            assert!(shown.len() as u64 <= room(&stream), "{bytes:.20}");
        }
    }

    #[test]
    fn the_oldest_are_dropped_also_where_somebody_holds_them() {
        let directory = tempfile::tempdir().expect("directory");
        let outputs = outputs(&directory);
        let large = vec![b'x'; 8 << 20];
        kept(&outputs, &large, b"");
        let held = File::open(directory.path().join("1.stdout")).expect("first");
        for _ in 2..=9 {
            kept(&outputs, &large, b"");
        }
        let names: Vec<String> = outputs.list().into_iter().map(|kept| kept.name).collect();
        assert_eq!((names.len(), names[0].as_str()), (8, "2.stdout"));
        assert_eq!(held.metadata().expect("metadata").len(), 0);
        for _ in 0..200 {
            kept(&outputs, &[b'x'; 9000], b"");
        }
        assert_eq!(outputs.list().len(), MOST_FILES);
        assert_eq!(std::fs::read_dir(directory.path()).expect("directory").count(), MOST_FILES);
    }

    #[test]
    fn a_gap_is_marked_in_the_file_and_told_of_it() {
        let directory = tempfile::tempdir().expect("directory");
        let outputs = outputs(&directory);
        let mut outcome = outcome(b"", b"");
        outcome.stdout = Stream { head: b"a".to_vec(), tail: b"z".to_vec(), bytes: 1 << 30 };
        outputs.keep(&mut outcome);
        let bytes = outputs.read("1.stdout").expect("bytes");
        assert_eq!(String::from_utf8_lossy(&bytes), "a\n[… 1073741822 bytes left out …]\nz");
        let half = vec![b'x'; 512 << 10];
        outcome.stdout = Stream { head: half.clone(), tail: half, bytes: 1 << 30 };
        outputs.keep(&mut outcome);
        kept(&outputs, &[b'x'; 9000], b"");
        let parts: Vec<Option<String>> = outputs.list().into_iter().map(|kept| kept.part).collect();
        let part = |kib| Some(format!("first and last {kib} KiB of 1073741824 bytes"));
        assert_eq!(parts, [part(0), part(512), None]);
    }
}
