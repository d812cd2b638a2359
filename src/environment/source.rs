//! Looks at files of this host before anything is made of them.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::{FileStat, Mode, SFlag};
use nix::unistd::{getegid, geteuid};

use crate::plan::{FileIdentity, HostFile, Ids};

/// Why a file of this host is not used.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// It cannot be reached or read.
    #[error("{}: {}", path.display(), errno.desc())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the kernel says.
        errno: nix::Error,
    },
    /// It is something that cannot be shown or read.
    #[error("{} is a {kind}, not a {wanted}", path.display())]
    Kind {
        /// The file.
        path: PathBuf,
        /// What it is.
        kind: &'static str,
        /// What it should be.
        wanted: &'static str,
    },
    /// Somebody else could change it.
    #[error("{} {problem}", path.display())]
    Untrusted {
        /// The file.
        path: PathBuf,
        /// Who.
        problem: String,
    },
    /// It holds more than it may.
    #[error("{} is larger than {limit} bytes", path.display())]
    Size {
        /// The file.
        path: PathBuf,
        /// The most that is read.
        limit: u64,
    },
}

/// Checks a directory or regular file that shall be shown in a sandbox and remembers which one it
/// is. `path` is absolute; its last part is not followed if it is a link.
///
/// # Errors
/// [`SourceError::Io`] and [`SourceError::Kind`]: a link, FIFO, socket or device.
pub fn check(path: &Path) -> Result<HostFile, SourceError> {
    check_owned(path).map(|(file, _)| file)
}

/// As [`check`], with the file's owner, read from the same descriptor.
///
/// # Errors
/// As for [`check`].
pub fn check_owned(path: &Path) -> Result<(HostFile, Ids), SourceError> {
    let io = |errno| SourceError::Io { path: path.to_owned(), errno };
    let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let opened = nix::fcntl::open(path, flags, Mode::empty()).map_err(io)?;
    let stat = nix::sys::stat::fstat(&opened).map_err(io)?;
    let directory = match kind(&stat) {
        "directory" => true,
        "regular file" => false,
        kind => {
            let wanted = "directory or regular file";
            return Err(SourceError::Kind { path: path.to_owned(), kind, wanted });
        }
    };
    let identity = FileIdentity { device: stat.st_dev, inode: stat.st_ino };
    let owner = Ids { uid: stat.st_uid, gid: stat.st_gid };
    Ok((HostFile { path: path.to_owned(), directory, identity }, owner))
}

/// What stands at the path of a directory now, if it was made anew since it was checked, as a checkout
/// is: another directory of ours, to which no link leads. Else what was checked, and a launch will say
/// what is wrong. For root always that: he can read what nobody else may see.
#[must_use]
pub fn made_anew(known: &HostFile) -> HostFile {
    let found = || {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let how = OpenHow::new().flags(flags).resolve(ResolveFlag::RESOLVE_NO_SYMLINKS);
        let opened = openat2(AT_FDCWD, &known.path, how).ok()?;
        let stat = nix::sys::stat::fstat(&opened).ok()?;
        let ours = geteuid().as_raw() == stat.st_uid && stat.st_uid != 0;
        ours.then_some(FileIdentity { device: stat.st_dev, inode: stat.st_ino })
    };
    match found() {
        Some(identity) if known.directory => HostFile { identity, ..known.clone() },
        _ => known.clone(),
    }
}

/// Refuses a directory or file that somebody other than us (`euid`) and root could change.
///
/// # Errors
/// [`SourceError::Io`] and [`SourceError::Untrusted`].
pub(crate) fn check_trusted(path: &Path, euid: u32) -> Result<(), SourceError> {
    let flags = AtFlags::empty();
    let stat = nix::sys::stat::fstatat(nix::fcntl::AT_FDCWD, path, flags)
        .map_err(|errno| SourceError::Io { path: path.to_owned(), errno })?;
    trusted(path, (stat.st_uid, stat.st_gid), stat.st_mode, euid)
}

/// `owner` is a user and a group. The group counts as ours if it is the one that we are in: with most
/// distributions everybody has one of his own, and a umask of 002. In a sticky directory nobody can replace
/// what is another's (`/nix/store`).
fn trusted(path: &Path, owner: (u32, u32), mode: u32, euid: u32) -> Result<(), SourceError> {
    let (owner, group) = owner;
    let problem = if owner != euid && owner != 0 {
        format!("belongs to uid {owner}, neither to root nor to uid {euid}, who runs this program")
    } else if mode & 0o002 != 0 {
        format!("can be changed by everybody (mode {:o}); chmod o-w", mode & 0o7777)
    } else if mode & 0o1020 == 0o020 && group != 0 && group != getegid().as_raw() {
        format!("can be changed by the group {group} (mode {:o}); chmod g-w", mode & 0o7777)
    } else {
        return Ok(());
    };
    Err(SourceError::Untrusted { path: path.to_owned(), problem })
}

/// Reads a small text or JSON file that only we or root can have written. Never hangs: a FIFO is
/// opened without waiting and refused. With `follow` the last part may be a link.
///
/// # Errors
/// All of [`SourceError`].
pub(crate) fn read_small(
    path: &Path,
    follow: bool,
    limit: u64,
    euid: u32,
) -> Result<Vec<u8>, SourceError> {
    let io = |error: io::Error| {
        let errno = nix::Error::from_raw(error.raw_os_error().unwrap_or(libc::EIO));
        SourceError::Io { path: path.to_owned(), errno }
    };
    let no_file = |kind| {
        let path = path.to_owned();
        SourceError::Kind { path, kind, wanted: "regular file" }
    };
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY | if follow { 0 } else { libc::O_NOFOLLOW };
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path);
    let file = match file.map_err(|error| (error.raw_os_error(), error)) {
        Err((Some(libc::ELOOP), _)) if !follow => return Err(no_file("symbolic link")),
        Err((Some(libc::ENXIO), _)) => return Err(no_file("socket")),
        Err((_, error)) => return Err(io(error)),
        Ok(file) => file,
    };
    let stat = nix::sys::stat::fstat(file.as_fd())
        .map_err(|errno| SourceError::Io { path: path.to_owned(), errno })?;
    if kind(&stat) != "regular file" {
        return Err(no_file(kind(&stat)));
    }
    let about = file.metadata().map_err(io)?;
    trusted(path, (about.uid(), about.gid()), about.mode(), euid)?;
    read_capped(&file, limit)
        .map_err(io)?
        .ok_or_else(|| SourceError::Size { path: path.to_owned(), limit })
}

/// The bytes of `file`, or `None` if there are more than `limit`.
fn read_capped(file: &File, limit: u64) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes)?;
    Ok((bytes.len() as u64 <= limit).then_some(bytes))
}

/// What kind of file it is, in words.
pub(crate) fn kind(stat: &FileStat) -> &'static str {
    match SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits()) {
        SFlag::S_IFDIR => "directory",
        SFlag::S_IFREG => "regular file",
        SFlag::S_IFLNK => "symbolic link",
        SFlag::S_IFIFO => "FIFO",
        SFlag::S_IFSOCK => "socket",
        _ => "device",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn me() -> u32 {
        nix::unistd::geteuid().as_raw()
    }

    #[test]
    fn a_checked_file_is_known_again_by_device_and_inode() {
        let dir = tempfile::tempdir().expect("tempdir");
        let about = fs::metadata(dir.path()).expect("stat");
        let identity = FileIdentity { device: about.dev(), inode: about.ino() };
        let expected = HostFile { path: dir.path().to_owned(), directory: true, identity };
        assert_eq!(check(dir.path()).expect("check"), expected);
    }

    #[test]
    fn links_and_fifos_are_no_source() {
        let dir = tempfile::tempdir().expect("tempdir");
        let (link, fifo) = (dir.path().join("link"), dir.path().join("fifo"));
        symlink("/", &link).expect("symlink");
        nix::unistd::mkfifo(&fifo, Mode::S_IRWXU).expect("mkfifo");
        for (path, kind) in [(&link, "symbolic link"), (&fifo, "FIFO")] {
            let says = format!("{} is a {kind}, not a directory or regular file", path.display());
            assert_eq!(check(path).expect_err(kind).to_string(), says);
        }
        let missing = dir.path().join("x");
        let says = format!("{}: No such file or directory", missing.display());
        assert_eq!(check(&missing).expect_err("missing").to_string(), says);
    }

    #[test]
    fn what_is_read_is_small_regular_and_ours() {
        let dir = tempfile::tempdir().expect("tempdir");
        let at = |name: &str| dir.path().join(name);
        let read = |path: &Path| read_small(path, false, 4, me()).map_err(|e| e.to_string());
        let refused = |path: &Path, says: &str| {
            assert_eq!(read(path), Err(format!("{} {says}", path.display())));
        };
        fs::write(at("four"), "1234").expect("write");
        assert_eq!(read(&at("four")), Ok(b"1234".to_vec()));
        fs::write(at("five"), "12345").expect("write");
        refused(&at("five"), "is larger than 4 bytes");
        symlink("four", at("link")).expect("symlink");
        refused(&at("link"), "is a symbolic link, not a regular file");
        assert_eq!(read_small(&at("link"), true, 4, me()).expect("follow"), b"1234");
        nix::unistd::mkfifo(&at("fifo"), Mode::S_IRWXU).expect("mkfifo");
        refused(&at("fifo"), "is a FIFO, not a regular file");
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).expect("bind");
        refused(&at("socket"), "is a socket, not a regular file");
        refused(dir.path(), "is a directory, not a regular file");
        fs::set_permissions(at("four"), fs::Permissions::from_mode(0o646)).expect("chmod");
        refused(&at("four"), "can be changed by everybody (mode 646); chmod o-w");
        let trusted = |group, mode| trusted(dir.path(), (me(), group), mode, me());
        let own = getegid().as_raw();
        for (group, mode) in
            [(own, 0o100_664), (0, 0o100_664), (own + 1, 0o100_644), (own + 1, 0o041_775)]
        {
            trusted(group, mode).expect("nobody else's");
        }
        let error = trusted(own + 1, 0o100_664).expect_err("another group's").to_string();
        let says = format!("can be changed by the group {} (mode 664); chmod g-w", own + 1);
        assert!(error.ends_with(&says), "{error}");
    }

    #[test]
    fn a_stranger_s_file_is_not_trusted() {
        let dir = tempfile::tempdir().expect("tempdir");
        check_trusted(dir.path(), me()).expect("ours");
        check_trusted(Path::new("/"), me()).expect("root's");
        // As root we can give it away; as anybody else we ask in a stranger's name.
        let (owner, asks) = if me() == 0 { (4242, 0) } else { (me(), me() + 1) };
        if me() == 0 {
            std::os::unix::fs::chown(dir.path(), Some(owner), None).expect("chown");
        }
        let says = format!(
            "{} belongs to uid {owner}, neither to root nor to uid {asks}, who runs this program",
            dir.path().display()
        );
        let error = check_trusted(dir.path(), asks).expect_err("stranger");
        assert_eq!(error.to_string(), says);
    }
}
