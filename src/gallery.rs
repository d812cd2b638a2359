//! Pictures: image files that a run made or changed in its `/workspace`.
//!
//! Sandboxed code may do with that directory what it likes, also while it is looked at. So nothing
//! here trusts a name twice: every file is opened below the directory, never through a link, never
//! waiting, and judged by what was opened. How much is looked at, opened and read is bounded.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::dir::{Dir, Type};
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::{FileStat, SFlag, fstat, fstatat};

use crate::kernel;
use crate::outcome::{Files, Image, LeftOut};

/// Pictures of one run.
const MOST: usize = 4;
/// Bytes of one picture.
const MOST_EACH: u64 = 1 << 20;
/// Bytes of all pictures of one run.
const MOST_IN_ALL: u64 = 3 << 20;
/// Directories below each other, `/workspace` the first. What lies deeper is most often somebody's
/// package, and is only named.
const DEPTH: usize = 3;
/// Names that are read.
const ENTRIES: usize = 2000;
/// Files that are opened; of more only their names are told.
const OPENED: usize = 32;
/// Names of what could be a picture. What it is its first bytes tell.
const SUFFIXES: [&str; 5] = ["png", "jpg", "jpeg", "gif", "webp"];
/// Names of pictures that not every client takes.
const OTHERS: [&str; 5] = ["svg", "bmp", "tif", "tiff", "avif"];

/// The pictures of one sandbox.
#[derive(Debug)]
pub struct Gallery {
    /// Where the directory comes, until it has come.
    socket: Option<OwnedFd>,
    workspace: Option<OwnedFd>,
    seen: BTreeMap<PathBuf, Stamp>,
}

/// What tells that a file was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Stamp {
    changed: (i64, i64),
    inode: u64,
    size: i64,
}

impl Gallery {
    /// A gallery, and the socket over which its sandbox hands out `/workspace`.
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE`.
    pub fn new() -> nix::Result<(Self, OwnedFd)> {
        let (ours, theirs) = kernel::message_pair()?;
        Ok((Self::of(ours), theirs))
    }

    /// The gallery of a sandbox that hands its `/workspace` out over the other end of `socket`.
    #[must_use]
    pub const fn of(socket: OwnedFd) -> Self {
        Self { socket: Some(socket), workspace: None, seen: BTreeMap::new() }
    }

    /// Notes in `files` what was made or changed since the last look. To be called when the
    /// sandbox's code has begun; the sandbox may have ended.
    pub fn look(&mut self, files: &mut Files) {
        if let Some(socket) = self.socket.take() {
            // Pid 1 has sent it before it started the code, or never will.
            self.workspace = match kernel::receive_message(socket.as_fd()) {
                Ok(Some((_, fds))) => fds.into_iter().next(),
                Ok(None) | Err(_) => None,
            };
        }
        let Some(workspace) = &self.workspace else { return };
        let Found { pictures: found, all } = walk(workspace);
        files.looked_at = (!all).then_some(ENTRIES);
        let mut fresh: Vec<(Stamp, &Path)> = found
            .iter()
            .filter(|(path, stamp)| self.seen.get(*path) != Some(stamp))
            .map(|(path, stamp)| (*stamp, path.as_path()))
            .collect();
        // Packages have pictures by the hundred, and few are named.
        fresh.sort_unstable_by_key(|(stamp, path)| (lies_deep(path), *stamp, *path));
        let mut opened = 0;
        for (stamp, path) in fresh {
            let why = if lies_deep(path) {
                "deeper than 3 directories"
            } else if has_suffix(path, &OTHERS) {
                "not PNG, JPEG, GIF or WebP"
            } else if opened == OPENED {
                "after 32 others"
            } else {
                opened += 1;
                take(workspace, path, files);
                continue;
            };
            let bytes = u64::try_from(stamp.size).unwrap_or(0);
            files.left_out.push(LeftOut { name: name(path), bytes, why });
        }
        self.seen = found;
    }
}

/// What a look found.
struct Found {
    /// Everything that could be a picture.
    pictures: BTreeMap<PathBuf, Stamp>,
    /// Whether there is nothing else.
    all: bool,
}

/// Opens what lies below `root`: no link is followed, no other file system entered, and nothing
/// waited for (a FIFO, a lease).
fn open_below(root: &OwnedFd, path: &Path, flags: OFlag) -> nix::Result<OwnedFd> {
    let flags = flags
        | OFlag::O_RDONLY
        | OFlag::O_NONBLOCK
        | OFlag::O_NOFOLLOW
        | OFlag::O_NOCTTY
        | OFlag::O_CLOEXEC;
    let resolve = ResolveFlag::RESOLVE_BENEATH
        | ResolveFlag::RESOLVE_NO_SYMLINKS
        | ResolveFlag::RESOLVE_NO_MAGICLINKS
        | ResolveFlag::RESOLVE_NO_XDEV;
    openat2(root, path, OpenHow::new().flags(flags).resolve(resolve))
}

/// Everything that could be a picture, what lies higher first if there is too much.
fn walk(root: &OwnedFd) -> Found {
    let mut pictures = BTreeMap::new();
    let mut directories = VecDeque::from([PathBuf::from(".")]);
    let mut left = Some(ENTRIES);
    while let Some(directory) = directories.pop_front() {
        // What cannot be read shows nothing.
        let Ok(opened) = open_below(root, &directory, OFlag::O_DIRECTORY) else { continue };
        let Ok(mut opened) = Dir::from_fd(opened) else { continue };
        for (name, kind) in names(&mut opened, &mut left) {
            let path = directory.strip_prefix(".").unwrap_or(&directory).join(&name);
            if kind == Some(Type::Directory) {
                directories.push_back(path);
            } else if (has_suffix(&path, &SUFFIXES) || has_suffix(&path, &OTHERS))
                && let Ok(stat) = fstatat(&opened, &name, AtFlags::AT_SYMLINK_NOFOLLOW)
                && is_regular(&stat)
            {
                pictures.insert(path, stamp(&stat));
            }
        }
    }
    Found { pictures, all: left.is_some() }
}

/// The names in a directory but those that begin with a dot, as long as some are `left`: `None` once
/// there was one too many.
fn names(directory: &mut Dir, left: &mut Option<usize>) -> Vec<(PathBuf, Option<Type>)> {
    let mut names = Vec::new();
    for entry in directory.iter().map_while(Result::ok) {
        let name = entry.file_name().to_bytes();
        if name.starts_with(b".") {
            continue;
        }
        *left = left.and_then(|left| left.checked_sub(1));
        if left.is_none() {
            break;
        }
        names.push((PathBuf::from(std::ffi::OsStr::from_bytes(name)), entry.file_type()));
    }
    names
}

fn lies_deep(path: &Path) -> bool {
    path.components().count() > DEPTH
}

fn has_suffix(path: &Path, suffixes: &[&str]) -> bool {
    path.extension()
        .is_some_and(|suffix| suffixes.iter().any(|known| suffix.eq_ignore_ascii_case(known)))
}

fn is_regular(stat: &FileStat) -> bool {
    SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits()) == SFlag::S_IFREG
}

const fn stamp(stat: &FileStat) -> Stamp {
    Stamp { changed: (stat.st_mtime, stat.st_mtime_nsec), inode: stat.st_ino, size: stat.st_size }
}

fn name(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Takes one picture, if it is one and there is room.
fn take(root: &OwnedFd, path: &Path, files: &mut Files) {
    let Ok(file) = open_below(root, path, OFlag::empty()) else { return };
    let Ok(stat) = fstat(&file) else { return };
    if !is_regular(&stat) {
        return;
    }
    // As much of it as may be and one byte more, whatever size it says it has.
    let mut bytes = Vec::new();
    if File::from(file).take(MOST_EACH + 1).read_to_end(&mut bytes).is_err() {
        return;
    }
    let Some(mime) = mime(&bytes) else { return };
    let name = name(path);
    let length = bytes.len() as u64;
    let taken: u64 = files.images.iter().map(|image| image.bytes.len() as u64).sum();
    let why = if length > MOST_EACH {
        "larger than 1 MiB"
    } else if !is_whole(mime, &bytes) {
        "incomplete"
    } else if files.images.len() >= MOST {
        "more than 4 images"
    } else if taken + length > MOST_IN_ALL {
        "more than 3 MiB of images"
    } else {
        files.images.push(Image { name, mime, bytes });
        return;
    };
    let bytes = length.max(u64::try_from(stat.st_size).unwrap_or(0));
    files.left_out.push(LeftOut { name, bytes, why });
}

/// What a file is, of what every client takes.
fn mime(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        _ => None,
    }
}

/// Whether a picture has its end: one that was cut off, as by a time-out in the middle of writing,
/// makes some clients refuse the whole conversation.
fn is_whole(mime: &str, bytes: &[u8]) -> bool {
    match mime {
        "image/png" => bytes.ends_with(b"IEND\xae\x42\x60\x82"),
        "image/jpeg" => bytes.ends_with(b"\xff\xd9"),
        "image/gif" => bytes.ends_with(b";"),
        _ => match bytes[4..8].try_into().map(u32::from_le_bytes) {
            Ok(length) => u64::from(length) + 8 <= bytes.len() as u64,
            Err(_) => false,
        },
    }
}

#[cfg(test)]
mod tests;
