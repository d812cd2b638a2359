//! What a launcher makes ahead, in namespaces of its own: file trees and networks.
//!
//! A *template* is a mount namespace in which all that the sandboxes of one kind have in common
//! stands ready, its root entered and sealed. A sandbox is cloned from there: it gets a copy of the
//! namespace, in which the kernel locks every mount (mount_namespaces(7): it belongs to a less
//! privileged user namespace), and adds what is its own. Networks are made while nobody waits; each
//! is used once.
//!
//! For both the launcher must rule the user namespace that owns them, so it enters one of its own
//! and keeps its capabilities there. They reach nothing that the launcher did not make, and each
//! sandbox gives up all capabilities in a user namespace below.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::stat::Mode;

use super::child::{self, Parent};
use super::launcher::Launch;
use super::report::{At, StepError};
use super::steps::Network;
use super::{process, removal, start};
use crate::kernel::{self, Cloned, Namespaces};
use crate::plan::{Identity, Ids};

/// Templates that are kept; the oldest goes.
const TEMPLATES: usize = 32;
/// The step that says that a template cannot be used.
pub(super) const ENTER: &str = "enter the template";
/// Networks that are kept ready.
const NETWORKS: usize = 4;

/// The launcher's own namespaces and what it has made in them.
#[derive(Debug)]
pub(super) struct Workshop {
    mounts: OwnedFd,
    network: OwnedFd,
    templates: VecDeque<(u64, OwnedFd)>,
    made: u64,
    networks: Vec<OwnedFd>,
    /// Whether it may go from one namespace to another: a container's filter may know no setns(2).
    may_move: bool,
}

impl Workshop {
    /// Enters namespaces of this process's own. It maps `ids` to themselves, so that the sandboxes'
    /// ids, one level deeper, are what they would be without it. Host mounts stay slaves of the
    /// host's: what is unmounted there is here too.
    pub(super) fn enter(ids: Ids, proc: BorrowedFd<'_>) -> Result<Self, StepError> {
        let step = "give the launcher namespaces of its own";
        let all = CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET;
        unshare(all).at(step, "")?;
        process::map_ids(&Identity { inside: ids, ..Identity::of(ids) }, proc)?;
        let mounts = own_namespace(proc, "mnt").at(step, "")?;
        let network = own_namespace(proc, "net").at(step, "")?;
        let may_move = setns(&mounts, CloneFlags::CLONE_NEWNS)
            .and_then(|()| setns(&network, CloneFlags::CLONE_NEWNET))
            .is_ok();
        let (templates, networks) = (VecDeque::new(), Vec::new());
        Ok(Self { mounts, network, templates, made: 0, networks, may_move })
    }

    /// Makes a template of the kind of `launch`; returns its number.
    pub(super) fn make_template(
        &mut self,
        launch: &Launch,
        parent: Parent<'_>,
    ) -> Result<u64, StepError> {
        let step = "make a template";
        if !self.may_move {
            return Err(StepError::new(step, "(setns is refused)", Errno::EPERM));
        }
        let (ours, theirs) = kernel::message_pair().at(step, "")?;
        let namespace = match kernel::clone(Namespaces::TREE, None).at(step, "")? {
            Cloned::Child => child::template(launch, parent, theirs),
            Cloned::Parent { pidfd, .. } => {
                drop(theirs);
                start::wait_until_made(ours.as_fd()).inspect_err(|_| {
                    // It has ended, or hangs.
                    let _ = kernel::pidfd_signal(pidfd.as_fd(), libc::SIGKILL);
                })?
            }
        };
        if self.templates.len() == TEMPLATES {
            self.templates.pop_front();
        }
        self.made += 1;
        self.templates.push_back((self.made, namespace));
        Ok(self.made)
    }

    /// Lets go of template number `template`, and of the file systems that it shows.
    pub(super) fn forget(&mut self, template: u64) {
        self.templates.retain(|(known, _)| *known != template);
    }

    /// Makes one network, if there is room for it. Whether more would fit.
    pub(super) fn make_network(&mut self, proc: BorrowedFd<'_>) -> bool {
        let wanted = self.networks.len() < NETWORKS && removal::namespaces() == Namespaces::ALL;
        if wanted && self.may_move {
            // Without one a sandbox makes its own.
            if let Ok(network) = self.network(proc) {
                self.networks.push(network);
                return self.networks.len() < NETWORKS;
            }
        }
        false
    }

    fn network(&self, proc: BorrowedFd<'_>) -> nix::Result<OwnedFd> {
        unshare(CloneFlags::CLONE_NEWNET)?;
        let made = kernel::loopback_up().and_then(|()| own_namespace(proc, "net"));
        self.leave(&self.network, CloneFlags::CLONE_NEWNET);
        made
    }

    /// Clones pid 1 out of template number `template`, if one is named, and into a network that was
    /// made ahead, if one is ready.
    pub(super) fn clone(
        &mut self,
        template: Option<u64>,
        cgroup: Option<BorrowedFd<'_>>,
    ) -> Result<(Cloned, Network), StepError> {
        let step = ENTER;
        let network = self.networks.pop();
        if let Some(number) = template {
            let known = self.templates.iter().find(|(known, _)| *known == number);
            let (_, namespace) = known.ok_or(Errno::ESTALE).at(step, "")?;
            setns(namespace, CloneFlags::CLONE_NEWNS).at(step, "")?;
        }
        let joined = network.as_ref().map(|network| setns(network, CloneFlags::CLONE_NEWNET));
        let joined = matches!(joined, Some(Ok(())));
        let network = match (joined, removal::namespaces()) {
            (true, _) => Network::Joined,
            (false, Namespaces::ALL) => Network::Own,
            (false, _) => Network::Born,
        };
        let cloned = kernel::clone(Namespaces::BUT_NETWORK, cgroup);
        if !matches!(cloned, Ok(Cloned::Child)) {
            if joined {
                self.leave(&self.network, CloneFlags::CLONE_NEWNET);
            }
            if template.is_some() {
                self.leave(&self.mounts, CloneFlags::CLONE_NEWNS);
            }
        }
        Ok((cloned.at("create the namespaces", "")?, network))
    }

    /// Back into the launcher's own. Elsewhere it can do nothing right: then it ends, and the server
    /// starts another.
    fn leave(&self, own: &OwnedFd, kind: CloneFlags) {
        if setns(own, kind).is_err() {
            kernel::exit_now(1);
        }
    }
}

fn own_namespace(proc: BorrowedFd<'_>, kind: &str) -> nix::Result<OwnedFd> {
    let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
    openat(proc, format!("self/ns/{kind}").as_str(), flags, Mode::empty())
}
