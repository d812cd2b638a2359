//! `/outputs`: one tmpfs of a server that all its sandboxes show, read-only.
//!
//! It is mounted in a mount namespace of the launcher's own, so no path of the host leads to it and
//! it is gone with the launcher. Pid 1 is cloned with a copy of that namespace and binds the tmpfs
//! from there: a mount that is only a descriptor can be attached once, and before Linux 6.15 not be
//! copied.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::{Mode, fstat};

use super::report::StepError;
use crate::kernel::{self, Attributes};

/// Where it stands in the launcher's mount namespace: the first of these that there is. No plan may
/// show them, and neither the launcher nor pid 1 uses them.
const PLACES: [&str; 2] = ["/dev/shm", "/sys"];
/// Bytes, a little more than the server ever keeps.
const SIZE: &str = "80m";
/// Files, likewise.
const INODES: &str = "256";
/// Memory that holds no program.
const DATA: Attributes = Attributes::NOSUID.and(Attributes::NODEV).and(Attributes::NOEXEC);

/// Makes it, in the launcher's own namespaces. The directory that is returned can be written by the
/// launcher's user, from any mount namespace.
pub(super) fn make() -> Result<OwnedFd, StepError> {
    let failed = |errno| StepError::new("make room for outputs", "", errno);
    let options = [("size", SIZE), ("nr_inodes", INODES), ("mode", "0755")];
    let options = options.map(|(key, value)| (key, value.to_owned()));
    let tree = kernel::new_filesystem("tmpfs", &options, DATA).map_err(failed)?;
    let place = places().next().ok_or(Errno::ENOENT).map_err(failed)?;
    kernel::move_onto(tree.as_fd(), place.as_fd(), Path::new("")).map_err(failed)?;
    Ok(tree)
}

fn places() -> impl Iterator<Item = OwnedFd> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    PLACES.iter().filter_map(move |place| open(*place, flags, Mode::empty()).ok())
}

/// A read-only copy of the mount, in pid 1's copy of the launcher's mount namespace. `made` is what
/// [`make`] returned: without it, what stands at that place is the host's.
pub(super) fn open_copy(made: BorrowedFd<'_>) -> nix::Result<OwnedFd> {
    let device = fstat(made)?.st_dev;
    let is_it = |place: &OwnedFd| fstat(place).is_ok_and(|stat| stat.st_dev == device);
    let place = places().find(is_it).ok_or(Errno::ESTALE)?;
    let tree = kernel::clone_tree(place.as_fd(), Path::new(""), false)?;
    kernel::set_attributes(tree.as_fd(), DATA.and(Attributes::RDONLY), false)?;
    Ok(tree)
}
