//! Giving up root, for good.

use nix::unistd::{Gid, Uid, setgroups, setresgid, setresuid};

use super::report::StepError;
use crate::plan::Ids;

/// Becomes the host uid of a sandbox, if this process is root. Supplementary groups go first: a
/// sandbox that keeps root's can read what root's groups can.
///
/// # Errors
/// `EPERM` for a root without `CAP_SETUID` and `CAP_SETGID` (a container that dropped them).
pub fn become_outside(ids: Ids) -> Result<(), StepError> {
    if !Uid::effective().is_root() {
        return Ok(());
    }
    let (uid, gid) = (Uid::from_raw(ids.uid), Gid::from_raw(ids.gid));
    let step = "give up root for";
    setgroups(&[]).map_err(|errno| StepError::new("drop root's groups", "", errno))?;
    setresgid(gid, gid, gid)
        .map_err(|errno| StepError::new(step, format_args!("gid {gid}"), errno))?;
    setresuid(uid, uid, uid).map_err(|errno| StepError::new(step, format_args!("uid {uid}"), errno))
}
