//! Giving up root, for good.

use nix::unistd::{Gid, Uid, getegid, getgroups, setgroups, setresgid, setresuid};

use super::report::StepError;
use crate::outcome::{Strength, WallReport};
use crate::plan::{Identity, Ids, Wall};

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

/// Whether this process has the group of the host's root, as the user of a container or of a service may.
/// Only root could give it up (user_namespaces(7)). To be asked in the host's user namespace.
#[must_use]
pub fn has_root_group() -> bool {
    let root = Gid::from_raw(0);
    getegid() == root || getgroups().is_ok_and(|groups| groups.contains(&root))
}

/// What the ids of a sandbox are worth.
pub(crate) fn identity_wall(identity: &Identity, root_group: bool) -> WallReport {
    let Identity { inside, outside, hostname: _ } = identity;
    let ids = format!("uid {} inside is uid {} of the host", inside.uid, outside.uid);
    let (strength, detail) = match root_group {
        false => (Strength::Active, ids),
        true => (
            Strength::Weaker,
            format!("{ids}; whoever started this has root's group (gid 0), and so has the payload"),
        ),
    };
    WallReport { wall: Wall::Identity, strength, detail }
}
