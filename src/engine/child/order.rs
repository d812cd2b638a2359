//! What a sandbox that stands ready keeps for its payload, and how it takes the order.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::time::Instant;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::Mode;

use super::{Child, Line};
use crate::engine::report::{At, Done, StepError};
use crate::engine::start::{self, Begin, CodePlace, Start};
use crate::kernel;
use crate::plan::Command;

/// What is kept for a payload that is started later.
#[derive(Default)]
pub(super) struct Own {
    /// Its code's file.
    pub(super) code: Option<File>,
    /// The same, if it is written later, by whoever has the code.
    pub(super) code_place: Option<CodePlace>,
    /// What says that the code has come.
    pub(super) go: Option<OwnedFd>,
    /// Its `/workspace`.
    pub(super) workspace: Option<OwnedFd>,
    /// What came with the order. Never dropped: its descriptors were given other numbers.
    pub(super) start: Option<Start>,
    /// What to run.
    pub(super) command: Option<Command>,
    /// Since when there is something to run.
    pub(super) begun: Option<Instant>,
}

impl Own {
    /// Its descriptors have other numbers: those of `kept`, in the order in which they were placed.
    /// What is left, if it is one.
    fn renumber(&mut self, kept: Vec<OwnedFd>) -> Option<OwnedFd> {
        let mut kept = kept.into_iter();
        renumber(&mut self.code, &mut kept);
        if let Some(CodePlace { file, directory }) = self.code_place.take() {
            let (mut file, mut directory) = (Some(file), Some(directory));
            renumber(&mut file, &mut kept);
            renumber(&mut directory, &mut kept);
            self.code_place =
                file.zip(directory).map(|(file, directory)| CodePlace { file, directory });
        }
        renumber(&mut self.workspace, &mut kept);
        kept.next()
    }
}

impl Child<'_> {
    /// The payload's streams to 0, 1, 2, a session's control pipes to 3 and 4, the report pipe to
    /// the next number, and nothing else. Where those come later, what is needed until then.
    pub(super) fn place_descriptors(&mut self) -> Done {
        self.root = None;
        let placed = match &self.launch.begin {
            Begin::Now(start) => Line::Report(place(start, self.terminal.as_ref())?.0.into()),
            Begin::Ordered { order, .. } => {
                let Own { code, code_place, workspace, .. } = &self.own;
                let files = code.iter().chain(code_place.iter().map(|place| &place.file));
                let directories = code_place.iter().map(|place| &place.directory).chain(workspace);
                let wanted = files.map(AsFd::as_fd).chain(directories.map(AsFd::as_fd));
                let wanted: Vec<BorrowedFd<'_>> = wanted.chain([order.as_fd()]).collect();
                let kept = kernel::keep_only(&[], &wanted).at("place descriptors", "")?;
                self.own
                    .renumber(kept)
                    .ok_or(Errno::EBADF)
                    .map(Line::Order)
                    .at("place descriptors", "")?
            }
        };
        self.speak_through(placed);
        Ok(())
    }

    /// The old line's number is another descriptor's by now.
    pub(super) fn speak_through(&mut self, line: Line) {
        let _number_only = match std::mem::replace(&mut self.line, line) {
            Line::Report(report) => report.into_raw_fd(),
            Line::Order(order) => order.into_raw_fd(),
        };
    }

    /// Whoever looks into `/workspace` from outside gets a descriptor instead of a path: it names
    /// this very file system, whatever the payload does, and keeps it after the sandbox has ended.
    pub(super) fn hand_out_workspace(&mut self) -> Done {
        let step = "hand out /workspace";
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let directory =
            |root: BorrowedFd<'_>| openat(root, "workspace", flags, Mode::empty()).at(step, "");
        match &self.launch.begin {
            Begin::Now(Start { workspace: None, .. }) => Ok(()),
            Begin::Now(start) => send_workspace(start, &directory(self.root()?)?),
            // Whoever has no /workspace cannot be asked for it.
            Begin::Ordered { .. } => {
                self.own.workspace = directory(self.root()?).ok();
                Ok(())
            }
        }
    }

    /// Waits for the order, if the launch was ahead of it. Until then nobody's code has run here.
    pub(super) fn await_order(&mut self) -> Done {
        let step = "wait for the order to start";
        if let Line::Order(order) = &self.line {
            let code = self.own.code_place.as_ref();
            start::tell_standing(order.as_fd(), &Ok(()), code).at(step, "")?;
            // Whoever could give it has gone.
            let Some((command, start)) = start::wait_for_order(order.as_fd()).at(step, "")? else {
                kernel::exit_now(0)
            };
            // From here on somebody listens there.
            self.speak_through(Line::Report(start.report.try_clone().at(step, "")?.into()));
            self.take_order(command, start)?;
        }
        self.own.begun = Some(Instant::now());
        Ok(())
    }

    fn take_order(&mut self, command: Command, start: Start) -> Done {
        if let Some(file) = &mut self.own.code {
            copy_code(&start, file)?;
        }
        if let Some(directory) = &self.own.workspace {
            send_workspace(&start, directory)?;
        }
        let (report, go) = place(&start, None)?;
        self.speak_through(Line::Report(report.into()));
        self.own.go = go;
        self.own.start = Some(start);
        self.own.command = Some(command);
        Ok(())
    }
}

/// The sandbox's own, which the payload may open once more (`/dev/stdin`), not the host's.
fn no_input() -> Result<OwnedFd, StepError> {
    open("/dev/null", OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty()).at("open", "/dev/null")
}

/// The payload's streams and control pipes, then the report pipe and what says that the code has
/// come, which are returned.
fn place(
    start: &Start,
    terminal: Option<&OwnedFd>,
) -> Result<(OwnedFd, Option<OwnedFd>), StepError> {
    let nothing = match (terminal, &start.stdin) {
        (None, None) => Some(no_input()?),
        _ => None,
    };
    let mut payload = match terminal {
        Some(terminal) => vec![terminal.as_fd(); 3],
        None => start.stdin.iter().chain(&nothing).chain(&start.outputs).map(AsFd::as_fd).collect(),
    };
    payload.extend(start.control.iter().flatten().map(AsFd::as_fd));
    let own: Vec<BorrowedFd<'_>> =
        [&start.report].into_iter().chain(&start.go).map(AsFd::as_fd).collect();
    let kept = kernel::keep_only(&payload, &own);
    let _number_only = nothing.map(IntoRawFd::into_raw_fd);
    let mut kept = kept.at("place descriptors", "")?.into_iter();
    let report = kept.next().ok_or(Errno::EBADF).at("place descriptors", "")?;
    Ok((report, kept.next()))
}

/// The value's descriptor was given another number: the next one that was kept.
fn renumber<T: IntoRawFd + From<OwnedFd>>(
    value: &mut Option<T>,
    kept: &mut impl Iterator<Item = OwnedFd>,
) {
    if let Some(old) = value.take() {
        let _number_only = old.into_raw_fd();
        *value = kept.next().map(T::from);
    }
}

pub(super) fn copy_code(start: &Start, to: &mut File) -> Done {
    let step = "copy the code";
    let code = start.code.as_ref().ok_or(Errno::ENODATA).at(step, "")?;
    let mut from = File::from(code.try_clone().at(step, "")?);
    from.rewind().at(step, "")?;
    // Not std::io::copy, which asks the kernel for ways to do it within: for a few bytes they are dearer.
    let mut buffer = [0; 4 << 10];
    loop {
        match from.read(&mut buffer).at(step, "")? {
            0 => return Ok(()),
            length => to.write_all(&buffer[..length]).at(step, "")?,
        }
    }
}

fn send_workspace(start: &Start, directory: &OwnedFd) -> Done {
    let Some(socket) = &start.workspace else { return Ok(()) };
    match kernel::send_message(socket.as_fd(), b"workspace", &[directory.as_fd()]) {
        // Nobody wants it any more.
        Ok(()) | Err(Errno::EPIPE) => Ok(()),
        Err(errno) => Err(StepError::new("hand out /workspace", "", errno)),
    }
}
