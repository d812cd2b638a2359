//! Sandboxes whose interpreter has started before there is any code.
//!
//! It was told its command as always, and has opened the file that it is to run; only that this is a
//! FIFO, and nobody has written into it yet (see [`crate::engine::start`]). Once the code is there the
//! file is one like any other, and nothing tells the interpreter when it was started. It is used once.

use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl, openat, renameat};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use nix::sys::stat::Mode;
use nix::unistd::{pipe2, write};

use super::pool::Standing;
use super::{BackendError, Ends, Handover, Started, StepError};
use crate::engine::start::{CodePlace, LATER, give_order};
use crate::kernel;
use crate::plan::{Command, MountKind, Plan};

/// How long an interpreter that is started ahead may take until it waits, milliseconds.
const PATIENCE_MS: u16 = 10_000;

/// An interpreter that waits. Whatever becomes of it, it does not outlive this value.
#[derive(Debug)]
pub(super) struct Warm {
    pub(super) command: Command,
    begun: Begun,
    place: CodePlace,
    fifo: OwnedFd,
    go: OwnedFd,
}

/// A run whose code is with its interpreter.
#[derive(Debug)]
pub struct Begun {
    /// Its sandbox.
    pub started: Started,
    /// Our ends of its pipes.
    pub ends: Ends,
}

impl Warm {
    /// Starts the interpreter of `plan` in a sandbox that stands for it.
    pub(super) fn heat(standing: Standing, plan: &Plan) -> Result<Self, BackendError> {
        let Standing { order, started, place } = standing;
        let failed = |errno| StepError::new("start an interpreter ahead", "", errno);
        let place = place.ok_or(failed(Errno::ENODATA))?;
        let name = code_place(plan).ok_or(failed(Errno::ENODATA))?;
        let (ends, handover) = Ends::new(plan.identity().outside).map_err(failed)?;
        let (go_end, go) = pipe2(OFlag::O_CLOEXEC).map_err(failed)?;
        let handover = Handover { go: Some(go_end), ..handover };
        let open = |flag| {
            let flags = flag | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
            openat(&place.directory, name, flags, Mode::empty()).map_err(failed)
        };
        // While it is open for writing the interpreter neither waits in open(2), where nothing would
        // tell that it has arrived, nor finds the end of the file.
        let both = open(OFlag::O_RDWR)?;
        let opened = opened(&both).map_err(failed)?;
        give_order(order.as_fd(), &handover, plan.command()).map_err(failed)?;
        wait_readable(opened.as_fd(), started.pidfd.as_fd()).map_err(failed)?;
        // Then nobody but the interpreter reads: where it ends, nothing can be written.
        let fifo = open(OFlag::O_WRONLY)?;
        drop(both);
        let command = plan.command().clone();
        let begun = Begun { started, ends };
        Ok(Self { command, begun, place, fifo, go })
    }

    /// Gives it its code; `None` if it has ended meanwhile, or cannot be given that.
    pub(super) fn begin(self, plan: &Plan, code: &[u8]) -> Option<Begun> {
        let Self { begun, place, fifo, go, .. } = self;
        let pidfd = begun.started.pidfd.as_fd();
        let given = give(code, code_place(plan)?, place, &fifo, &go);
        if given.is_err() {
            // Before the FIFO is closed: it would run what it has.
            let _ = kernel::pidfd_signal(pidfd, libc::SIGKILL);
        }
        given.is_ok().then_some(begun)
    }
}

/// First the file, so that whoever looks for the code finds it; then what the interpreter waits for.
fn give(
    code: &[u8],
    name: &Path,
    place: CodePlace,
    fifo: &OwnedFd,
    go: &OwnedFd,
) -> nix::Result<()> {
    let CodePlace { mut file, directory } = place;
    let length = i32::try_from(code.len()).map_err(|_| Errno::EFBIG)?;
    if fcntl(fifo, FcntlArg::F_GETPIPE_SZ)? < length {
        fcntl(fifo, FcntlArg::F_SETPIPE_SZ(length))?;
    }
    file.write_all(code).map_err(|error| kernel::errno(&error))?;
    renameat(&directory, LATER, &directory, name)?;
    write(go, &[1])?;
    // EPIPE: the interpreter has ended. An empty pipe takes as much at once as it holds.
    match write(fifo, code)? {
        all if all == code.len() => Ok(()),
        _ => Err(Errno::EAGAIN),
    }
}

/// The name of the file that holds the code, if the plan has a place for that.
pub(super) fn code_place(plan: &Plan) -> Option<&Path> {
    let code = plan.mounts().iter().find(|mount| mount.kind == MountKind::Code)?;
    code.at.file_name().map(Path::new)
}

/// What tells that somebody else has opened `file`.
fn opened(file: &OwnedFd) -> nix::Result<Inotify> {
    let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    inotify.add_watch(path.as_str(), AddWatchFlags::IN_OPEN)?;
    Ok(inotify)
}

/// Waits until something can be read from `news`, or the sandbox has ended.
pub(super) fn wait_readable(news: BorrowedFd<'_>, pidfd: BorrowedFd<'_>) -> nix::Result<()> {
    let waits = |fd| PollFd::new(fd, PollFlags::POLLIN);
    let mut polled = [waits(pidfd), waits(news)];
    match poll(&mut polled, PollTimeout::from(PATIENCE_MS))? {
        0 => Err(Errno::ETIMEDOUT),
        _ if polled[0].any().unwrap_or(false) => Err(Errno::ESRCH),
        _ => Ok(()),
    }
}
