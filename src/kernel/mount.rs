//! The mount API of Linux 5.2 and 5.12: file systems and mounts as descriptors.
//!
//! A mount is made detached, given its attributes, and only then attached: there is no moment at
//! which a path inside the sandbox is writable that must not be, and no path is walked twice.

use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::errno::Errno;

use super::check;

const OPEN_TREE_CLONE: libc::c_uint = 1;
const OPEN_TREE_CLOEXEC: libc::c_uint = libc::O_CLOEXEC.cast_unsigned();
const AT_RECURSIVE: libc::c_uint = 0x8000;
const AT_EMPTY_PATH: libc::c_uint = 0x1000;
const AT_SYMLINK_NOFOLLOW: libc::c_uint = 0x100;
const MOVE_MOUNT_F_EMPTY_PATH: libc::c_uint = 0x4;
const MOVE_MOUNT_T_EMPTY_PATH: libc::c_uint = 0x40;
const FSOPEN_CLOEXEC: libc::c_uint = 1;
const FSCONFIG_SET_FLAG: libc::c_uint = 0;
const FSCONFIG_SET_STRING: libc::c_uint = 1;
const FSCONFIG_CMD_CREATE: libc::c_uint = 6;
const FSMOUNT_CLOEXEC: libc::c_uint = 1;
const MOUNT_ATTR_IDMAP: u64 = 0x0010_0000;
const MS_PRIVATE: u64 = 1 << 18;

/// Attributes of a mount (mount_setattr(2)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes(u64);

impl Attributes {
    /// No write through this mount.
    pub const RDONLY: Self = Self(0x1);
    /// set-uid bits and file capabilities have no effect.
    pub const NOSUID: Self = Self(0x2);
    /// Device nodes cannot be opened.
    pub const NODEV: Self = Self(0x4);
    /// Programs cannot be executed.
    pub const NOEXEC: Self = Self(0x8);

    /// Both sets.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

fn c_path(path: &Path) -> nix::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| Errno::EINVAL)
}

/// Takes ownership of a descriptor that a system call has just returned.
fn owned(value: libc::c_long) -> nix::Result<OwnedFd> {
    let raw = RawFd::try_from(value).map_err(|_| Errno::EBADF)?;
    // SAFETY: each caller passes the return value of a call that creates a descriptor, checked
    // to be no error; nobody else can own it yet.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

/// A detached copy of the mount tree at `path` below `dir` (`open_tree` with `OPEN_TREE_CLONE`).
/// An empty path names `dir` itself. Final symbolic links are not followed.
///
/// # Errors
/// `EINVAL` for a tree of another mount namespace, `ENOENT`, `EACCES`, `EPERM`.
pub fn clone_tree(dir: BorrowedFd<'_>, path: &Path, recursive: bool) -> nix::Result<OwnedFd> {
    let path = c_path(path)?;
    let mut flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_SYMLINK_NOFOLLOW;
    if recursive {
        flags |= AT_RECURSIVE;
    }
    if path.is_empty() {
        flags |= AT_EMPTY_PATH;
    }
    // SAFETY: `path` is a NUL-terminated string that outlives the call; the rest are integers.
    owned(check(unsafe {
        libc::syscall(libc::SYS_open_tree, dir.as_raw_fd(), path.as_ptr(), flags)
    })?)
}

/// Attaches a detached mount to `path` below `dir`; an empty path means `dir` itself.
///
/// # Errors
/// `ENOENT`, `ENOTDIR` (a file onto a directory or the reverse), `EINVAL`, `EPERM`.
pub fn move_onto(tree: BorrowedFd<'_>, dir: BorrowedFd<'_>, path: &Path) -> nix::Result<()> {
    let path = c_path(path)?;
    let mut flags = MOVE_MOUNT_F_EMPTY_PATH;
    if path.is_empty() {
        flags |= MOVE_MOUNT_T_EMPTY_PATH;
    }
    // SAFETY: both strings are NUL-terminated and outlive the call; the rest are integers.
    check(unsafe {
        libc::syscall(
            libc::SYS_move_mount,
            tree.as_raw_fd(),
            c"".as_ptr(),
            dir.as_raw_fd(),
            path.as_ptr(),
            flags,
        )
    })
    .map(drop)
}

fn setattr(
    tree: BorrowedFd<'_>,
    path: &Path,
    recursive: bool,
    attr: &libc::mount_attr,
) -> nix::Result<()> {
    let path = c_path(path)?;
    let mut flags = 0;
    if path.is_empty() {
        flags |= AT_EMPTY_PATH;
    }
    if recursive {
        flags |= AT_RECURSIVE;
    }
    // SAFETY: `path` is NUL-terminated, `attr` points to a struct mount_attr of the size passed;
    // both outlive the call, which only reads them.
    check(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            path.as_ptr(),
            flags,
            std::ptr::from_ref(attr),
            size_of::<libc::mount_attr>(),
        )
    })
    .map(drop)
}

fn no_change() -> libc::mount_attr {
    libc::mount_attr { attr_set: 0, attr_clr: 0, propagation: 0, userns_fd: 0 }
}

/// Adds attributes to a mount, or to it and all below it (Linux 5.12).
///
/// # Errors
/// `EPERM` without `CAP_SYS_ADMIN` over the mount namespace, `EINVAL`.
pub fn set_attributes(
    tree: BorrowedFd<'_>,
    attributes: Attributes,
    recursive: bool,
) -> nix::Result<()> {
    let attr = libc::mount_attr { attr_set: attributes.0, ..no_change() };
    setattr(tree, Path::new(""), recursive, &attr)
}

/// Maps the owners of the files in a detached mount through a user namespace (Linux 5.12).
///
/// # Errors
/// `EINVAL` where the file system does not support it, `EPERM` without `CAP_SYS_ADMIN` over the
/// file system's user namespace.
pub fn set_idmap(tree: BorrowedFd<'_>, userns: BorrowedFd<'_>) -> nix::Result<()> {
    let fd = u64::from(userns.as_raw_fd().cast_unsigned());
    let attr = libc::mount_attr { attr_set: MOUNT_ATTR_IDMAP, userns_fd: fd, ..no_change() };
    setattr(tree, Path::new(""), true, &attr)
}

/// Makes every mount of this mount namespace private: nothing propagates in or out.
///
/// # Errors
/// `EPERM` without `CAP_SYS_ADMIN`, `EINVAL` if `/` is no mount point (a chroot).
pub fn set_private() -> nix::Result<()> {
    let attr = libc::mount_attr { propagation: MS_PRIVATE, ..no_change() };
    // SAFETY: AT_FDCWD is a constant that names no descriptor and is valid for the path "/".
    let cwd = unsafe { BorrowedFd::borrow_raw(libc::AT_FDCWD) };
    setattr(cwd, Path::new("/"), true, &attr)
}

/// Makes a new file system and a detached mount of it.
///
/// `options` are `key=value` strings of the file system, or flags where the value is empty.
///
/// # Errors
/// `ENODEV` for an unknown type, `EINVAL` for a bad option, `EPERM` where the kernel refuses a
/// fresh `proc` because the one outside is over-mounted (mount_namespaces(7)).
pub fn new_filesystem(
    kind: &str,
    options: &[(&str, String)],
    attributes: Attributes,
) -> nix::Result<OwnedFd> {
    let kind = CString::new(kind).map_err(|_| Errno::EINVAL)?;
    // SAFETY: `kind` is NUL-terminated and outlives the call.
    let context =
        owned(check(unsafe { libc::syscall(libc::SYS_fsopen, kind.as_ptr(), FSOPEN_CLOEXEC) })?)?;
    for (key, value) in options {
        configure(context.as_fd(), key, value)?;
    }
    // SAFETY: FSCONFIG_CMD_CREATE takes no key and no value; null pointers are its documented form.
    check(unsafe {
        libc::syscall(
            libc::SYS_fsconfig,
            context.as_raw_fd(),
            FSCONFIG_CMD_CREATE,
            std::ptr::null::<libc::c_char>(),
            std::ptr::null::<libc::c_char>(),
            0,
        )
    })?;
    // SAFETY: integers only.
    owned(check(unsafe {
        libc::syscall(libc::SYS_fsmount, context.as_raw_fd(), FSMOUNT_CLOEXEC, attributes.0)
    })?)
}

fn configure(context: BorrowedFd<'_>, key: &str, value: &str) -> nix::Result<()> {
    let key = CString::new(key).map_err(|_| Errno::EINVAL)?;
    let text = CString::new(value).map_err(|_| Errno::EINVAL)?;
    let (command, text) = if value.is_empty() {
        (FSCONFIG_SET_FLAG, std::ptr::null())
    } else {
        (FSCONFIG_SET_STRING, text.as_ptr())
    };
    // SAFETY: `key` and `text` are NUL-terminated or, for a flag, null as fsconfig(2) demands;
    // both outlive the call.
    check(unsafe {
        libc::syscall(libc::SYS_fsconfig, context.as_raw_fd(), command, key.as_ptr(), text, 0)
    })
    .map(drop)
}

/// Makes `root` the root of this mount namespace and detaches the old one.
///
/// The old root is stacked on the new one for a moment (`pivot_root(".", ".")`, pivot_root(2)),
/// so no directory for it is needed.
///
/// # Errors
/// `EINVAL` if `root` is no mount point or the current root is not one, `EPERM`.
pub fn pivot_into(root: BorrowedFd<'_>) -> nix::Result<()> {
    nix::unistd::fchdir(root)?;
    nix::unistd::pivot_root(".", ".")?;
    nix::mount::umount2(".", nix::mount::MntFlags::MNT_DETACH)?;
    nix::unistd::chdir("/")
}
