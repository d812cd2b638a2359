//! Started as root: opening a plan's sources while that is still allowed.
//!
//! A sandbox never runs as uid 0 of the host, and whoever clones it has given up root. So what only
//! root can reach is opened before, by the caller, as detached mounts that travel to pid 1:
//!
//! | obstacle | answer |
//! |---|---|
//! | a parent directory that others cannot walk (`/root` is 0700) | the mount itself is passed |
//! | files that only root can read | an id-mapped mount: root's files appear as the payload's |
//! | a file system without id-mapped mounts | a refusal that says what helps |

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::OnceLock;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sched::CloneFlags;
use nix::sys::stat::{FileStat, Mode, fstat, lstat};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Uid};

use super::report::{At, StepError};
use super::steps::bind_sources;
use crate::kernel;
use crate::plan::{HostFile, Plan, lies_in};

/// Where Nix keeps what never changes.
const STORE: &str = "/nix/store";

/// Opens sources, while this process is root.
#[derive(Debug, Default)]
pub struct Sources {
    owners: OnceLock<OwnedFd>,
}

impl Sources {
    /// Makes ahead what needs a fork, before this process starts a second thread. Nothing to do
    /// for an ordinary user.
    ///
    /// # Errors
    /// User namespaces are off.
    pub fn prepare(&self, outside: u32) -> Result<(), StepError> {
        if Uid::effective().is_root() { self.owners(outside).map(drop) } else { Ok(()) }
    }

    /// Opens every source of `plan` as a detached mount, if this process is root; else none, and
    /// pid 1 opens them itself.
    ///
    /// # Errors
    /// A source that is gone, was replaced, or that the payload could not read.
    pub fn open(&self, plan: &Plan) -> Result<Vec<OwnedFd>, StepError> {
        if !Uid::effective().is_root() {
            return Ok(Vec::new());
        }
        let outside = plan.identity().outside.uid;
        let opened = bind_sources(plan).map(|(_, source)| self.open_one(source, outside));
        // Root without CAP_SYS_ADMIN, as in a container: pid 1 opens them as any user would.
        Ok(opened.collect::<Result<Option<_>, _>>()?.unwrap_or_default())
    }

    /// Whether a path leads elsewhere than when it was checked. Store paths never change.
    #[must_use]
    pub fn have_changed(&self, plan: &Plan) -> bool {
        let changed = |source: &HostFile| match lstat(&source.path) {
            Ok(stat) => {
                (stat.st_dev, stat.st_ino) != (source.identity.device, source.identity.inode)
            }
            Err(errno) => errno == Errno::ENOENT,
        };
        bind_sources(plan).any(|(at, source)| !lies_in(at, STORE) && changed(source))
    }

    fn open_one(&self, source: &HostFile, outside: u32) -> Result<Option<OwnedFd>, StepError> {
        let (file, stat) = open_checked(source)?;
        let tree = match kernel::clone_tree(file.as_fd(), Path::new(""), true) {
            Ok(tree) => tree,
            Err(Errno::EPERM) => return Ok(None),
            Err(errno) => return Err(StepError::new("mount", source.path.display(), errno)),
        };
        let readable = if source.directory { 0o005 } else { 0o004 };
        if stat.st_uid == 0 && stat.st_mode & readable != readable {
            self.map_owner(&tree, source, outside)?;
        }
        Ok(Some(tree))
    }

    /// Shows root's files as the payload's own.
    fn map_owner(&self, tree: &OwnedFd, source: &HostFile, outside: u32) -> Result<(), StepError> {
        let owners = self.owners(outside)?;
        kernel::set_idmap(tree.as_fd(), owners.as_fd()).map_err(|errno| {
            let advice = format!(
                "{} (only root can read it, and its file system cannot map owners: `chmod -R o+rX` it, or give it to another owner)",
                source.path.display()
            );
            StepError::new("show to an ordinary user", advice, errno)
        })
    }

    fn owners(&self, outside: u32) -> Result<&OwnedFd, StepError> {
        match self.owners.get() {
            Some(owners) => Ok(owners),
            None => {
                let owners = owner_namespace(outside)?;
                Ok(self.owners.get_or_init(|| owners))
            }
        }
    }
}

/// Opens a bind's source and makes sure that it is what was checked (CVE-2018-15664).
pub(super) fn open_checked(source: &HostFile) -> Result<(OwnedFd, FileStat), StepError> {
    let shown = source.path.display();
    let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let file = open(&source.path, flags, Mode::empty()).at("open", &shown)?;
    let stat = fstat(&file).at("open", &shown)?;
    if (stat.st_dev, stat.st_ino) != (source.identity.device, source.identity.inode) {
        let changed = "it was replaced after it was checked; start this program anew";
        return Err(StepError::new("open", format_args!("{shown} ({changed})"), Errno::ESTALE));
    }
    Ok((file, stat))
}

/// A user namespace in which the host's uid 0 is `outside`: the map of an id-mapped mount. It needs
/// no process once its descriptor is open.
fn owner_namespace(outside: u32) -> Result<OwnedFd, StepError> {
    let failed = |errno| StepError::new("make a user namespace for id-mapped mounts", "", errno);
    let (wait, go) = nix::unistd::pipe2(OFlag::O_CLOEXEC).map_err(failed)?;
    let (ready, tell) = nix::unistd::pipe2(OFlag::O_CLOEXEC).map_err(failed)?;
    // A helper, since whoever enters a user namespace cannot write a map of more than itself.
    let pid = match kernel::fork().map_err(failed)? {
        ForkResult::Child => {
            drop(go);
            let entered = nix::sched::unshare(CloneFlags::CLONE_NEWUSER).is_ok();
            let _ = nix::unistd::write(&tell, &[u8::from(entered)]);
            // Whether it was told or not: the other side waits for one or the other.
            drop(tell);
            let _ = File::from(wait).read(&mut [0]);
            kernel::exit_now(0)
        }
        ForkResult::Parent { child } => child,
    };
    drop((wait, tell));
    let mut entered = [0];
    let result = match File::from(ready).read(&mut entered) {
        Ok(1) if entered == [1] => map_and_open(pid.as_raw(), outside),
        _ => Err(Errno::EPERM),
    };
    drop(go);
    let _ = waitpid(pid, None);
    result.map_err(failed)
}

fn map_and_open(pid: i32, outside: u32) -> nix::Result<OwnedFd> {
    // uid 0 of the files becomes `outside`, and owners below that stay who they are; `outside` itself and all
    // above are nobody: a map is one to one.
    let map = format!("0 {outside} 1\n1 1 {}\n", outside.saturating_sub(1));
    for name in ["uid_map", "gid_map"] {
        std::fs::write(format!("/proc/{pid}/{name}"), &map)
            .map_err(|error| kernel::errno(&error))?;
    }
    let path = format!("/proc/{pid}/ns/user");
    open(path.as_str(), OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty())
}
