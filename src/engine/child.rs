//! Pid 1 enacts the steps.
//!
//! This code runs after the clone, in a process with one thread: ordinary Rust is allowed. It
//! returns to nobody: it ends in `init::run` or in `_exit`.

mod order;
mod tree;

use std::cell::Cell;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Instant;

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;

use self::order::Own;
use self::tree::{DATA, WRITABLE};
use super::filters::filter;
use super::init::{self, Reaper};
use super::landlock;
use super::masks::{Covers, NamespaceLimits};
use super::memory_watch::{self, MemoryWatch};
use super::removal::{self, Part};
use super::report::{At, Done, Report, StepError};
use super::start::{self, Begin, Start};
use super::steps::{self, Ahead, SHARED_MEMORY, Step, steps};
use super::{Launch, payload, privilege, process};
use crate::kernel::{self, Arguments};
use crate::outcome::{Strength, WallReport};
use crate::plan::{Command, Plan, ProcMode, Wall};
use crate::policy::Wearer;

/// Pid 1's state while it enacts its steps.
struct Child<'l> {
    launch: &'l Launch,
    parent: Parent<'l>,
    line: Line,
    root: Option<OwnedFd>,
    terminal: Option<OwnedFd>,
    covers: Option<Covers>,
    limits: NamespaceLimits,
    own: Own,
    walls: Vec<WallReport>,
    took: Vec<(String, u64)>,
}

/// Characters of a step that are told with its time.
const STEP_NAME: usize = 60;

/// To whom pid 1 speaks.
enum Line {
    /// The run's supervisor.
    Report(File),
    /// Whoever will give the order to start, or has asked for a template.
    Order(OwnedFd),
}

/// What pid 1 knows of the launcher.
#[derive(Debug, Clone, Copy)]
pub struct Parent<'l> {
    /// Its process.
    pub process: BorrowedFd<'l>,
    /// Its socket, if it has one.
    pub control: Option<BorrowedFd<'l>>,
    /// The directory behind `/outputs`, if it made one.
    pub outputs: Option<BorrowedFd<'l>>,
    /// The host's `/proc`.
    pub proc: BorrowedFd<'l>,
    /// Where its arguments lie.
    pub arguments: Arguments,
    /// Whether it has the group of the host's root; see [`privilege::has_root_group`].
    pub root_group: bool,
}

/// What pid 1 is from here on. Never returns.
pub fn pid1(launch: &Launch, parent: Parent<'_>, ahead: Ahead) -> ! {
    let line = match &launch.begin {
        Begin::Now(start) => start.report.try_clone().map(|report| Line::Report(report.into())),
        Begin::Ordered { order, .. } => order.try_clone().map(Line::Order),
    };
    let Ok(line) = line else { kernel::exit_now(1) };
    let mut child = Child::new(launch, parent, line);
    let steps = removal::standing(steps(&launch.plan, ahead));
    let enacted = steps.iter().try_for_each(|step| child.enact_timed(step));
    match enacted.and_then(|()| child.start_payload()) {
        Ok(never) => match never {},
        Err(error) => child.fail(error),
    }
}

/// Makes the template of a plan's kind and sends its mount namespace to `to`. Never returns.
pub(super) fn template(launch: &Launch, parent: Parent<'_>, to: OwnedFd) -> ! {
    let mut child = Child::new(launch, parent, Line::Order(to));
    let steps = removal::standing(steps::template(&launch.plan));
    let made = steps.iter().try_for_each(|step| child.enact(step)).and_then(|()| {
        openat(parent.proc, "self/ns/mnt", OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty())
            .at("open the template", "")
    });
    let (namespace, Line::Order(to)) = (made, &child.line) else { kernel::exit_now(1) };
    let sent = start::tell_made(to.as_fd(), &namespace);
    kernel::exit_now(i32::from(sent.is_err()))
}

impl<'l> Child<'l> {
    fn new(launch: &'l Launch, parent: Parent<'l>, line: Line) -> Self {
        Self {
            launch,
            parent,
            line,
            root: None,
            terminal: None,
            covers: None,
            limits: NamespaceLimits::default(),
            own: Own::default(),
            walls: Vec::new(),
            took: Vec::new(),
        }
    }

    /// Tells what failed, and ends.
    fn fail(&self, error: StepError) -> ! {
        let sent = match &self.line {
            Line::Report(report) => Report::Failed(error).send(report).is_ok(),
            Line::Order(order) => start::tell_standing(order.as_fd(), &Err(error), None).is_ok(),
        };
        kernel::exit_now(if sent { 1 } else { 2 })
    }

    fn enact_timed(&mut self, step: &Step<'_>) -> Done {
        if !self.launch.timed {
            return self.enact(step);
        }
        let begun = Instant::now();
        let done = self.enact(step);
        let took = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        let name: String = format!("{step:?}").chars().take(STEP_NAME).collect();
        self.took.push((name, took));
        done
    }

    fn enact(&mut self, step: &Step<'_>) -> Done {
        match step {
            Step::LeaveLauncher => self.leave_launcher(),
            Step::MapIds => process::map_ids(self.plan().identity(), self.parent.proc),
            Step::ForgetArguments => {
                self.parent.arguments.forget(c"init").at("forget the launcher's arguments", "")
            }
            Step::FirstToGo => self.first_to_go(),
            Step::TakeIds => process::take_ids(self.plan().identity()),
            Step::DieWithLauncher => self.die_with_launcher(),
            Step::NewSession => nix::unistd::setsid().map(drop).at("start a session", ""),
            Step::NewGroup => {
                let own = nix::unistd::Pid::from_raw(0);
                nix::unistd::setpgid(own, own).at("start a process group", "")
            }
            Step::NewKeyring => self.new_keyring(),
            Step::NewNetwork => nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET)
                .at("create the network namespace", ""),
            Step::LoopbackUp => kernel::loopback_up().at("bring lo up", ""),
            Step::Hostname(name) => nix::unistd::sethostname(name).at("set the hostname", name),
            Step::PrivateMounts => kernel::set_private().at("make all mounts private", ""),
            Step::NewRoot { inodes } => self.new_root(*inodes),
            Step::InTemplate => self.in_template(),
            Step::Directory(at) => self.directory(at),
            Step::Symlink(at, target) => self.symlink(at, target),
            Step::File(at, content) => self.file(at, content.as_bytes()),
            Step::Code(at) => self.code(at),
            Step::Bind(at, source, number) => self.bind(at, source, *number),
            Step::Tmpfs { at, size, inodes, mode } => {
                self.tmpfs(at, *size, *inodes, *mode, WRITABLE).map(drop)
            }
            Step::Outputs(at) => self.outputs(at),
            Step::Covers => self.make_covers(),
            Step::OpenCovers => self.open_covers(),
            Step::Proc => self.proc(),
            Step::Device(device) => self.device(device),
            Step::DeviceLinks => self.device_links(),
            Step::Pts => self.pts(),
            Step::Terminal => self.terminal(),
            Step::SharedMemory { size } => {
                self.tmpfs(Path::new(SHARED_MEMORY), *size, 4096, 0o1777, DATA).map(drop)
            }
            Step::HandOutWorkspace => self.hand_out_workspace(),
            Step::EnterRoot => kernel::pivot_into(self.root()?).at("enter the new root", ""),
            Step::OpenNamespaceLimits => self.open_namespace_limits(),
            Step::MaskProc => self.mask_proc(),
            Step::WriteNamespaceLimits => std::mem::take(&mut self.limits).write(),
            Step::SealRoot => self.seal_root(),
            Step::FixedValues => process::fixed_values(),
            Step::PlaceDescriptors => self.place_descriptors(),
            Step::ResetSignals => kernel::reset_dispositions().at("reset signals", ""),
            Step::Rlimits(limits) => process::rlimits(limits),
            Step::DropCapabilities => process::drop_capabilities(),
            Step::Undumpable => nix::sys::prctl::set_dumpable(false).at("hide pid 1", ""),
            Step::NoNewPrivileges => nix::sys::prctl::set_no_new_privs().at("set no_new_privs", ""),
            Step::Landlock => self.landlock(),
            Step::TakeForeground => {
                payload::take_foreground().at("take the foreground of the terminal", "")
            }
            Step::NestedLandlock => landlock::enter(self.plan().access()).map(drop),
            Step::AwaitOrder => self.await_order(),
            Step::TellReady => self.tell_ready(),
            Step::UnblockSignals => init::unblock_signals().at("unblock signals", ""),
            Step::EnterDirectory => {
                let directory = &self.command().directory;
                nix::unistd::chdir(directory).at("enter", directory.display())
            }
        }
    }

    fn plan(&self) -> &Plan {
        &self.launch.plan
    }

    /// What is run: what came with the order, if there was one.
    fn command(&self) -> &Command {
        self.own.command.as_ref().unwrap_or(self.plan().command())
    }

    fn root(&self) -> Result<BorrowedFd<'_>, StepError> {
        self.root.as_ref().map(AsFd::as_fd).ok_or_else(|| {
            StepError::new("use the new root before it was made", "", Errno::ENOTRECOVERABLE)
        })
    }

    fn leave_launcher(&self) -> Done {
        match self.parent.control {
            Some(socket) => nix::unistd::close(socket.as_raw_fd()).at("leave the launcher", ""),
            None => Ok(()),
        }
    }

    /// When the host runs out of memory the sandbox goes first. Whoever started the program may be
    /// shielded from that, and it is inherited; the largest value is the one that can always be
    /// written.
    fn first_to_go(&self) -> Done {
        process::write_own(self.parent.proc, "oom_score_adj", "1000")
    }

    fn die_with_launcher(&self) -> Done {
        let step = "die with the launcher";
        nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL).at(step, "")?;
        // Had it died before the line above, no signal would ever come. getppid() is 0 in a new
        // PID namespace and tells nothing; a pidfd becomes readable when its process ends.
        let mut poll = [nix::poll::PollFd::new(self.parent.process, nix::poll::PollFlags::POLLIN)];
        match nix::poll::poll(&mut poll, nix::poll::PollTimeout::ZERO).at(step, "")? {
            0 => Ok(()),
            _ => Err(StepError::new(step, "(it is gone)", Errno::ESRCH)),
        }
    }

    fn new_keyring(&mut self) -> Done {
        let shared = match kernel::join_new_session_keyring() {
            Ok(()) => {
                self.active(Wall::Keyring, "a session keyring of its own");
                return Ok(());
            }
            Err(Errno::ENOSYS) => {
                self.active(Wall::Keyring, "the kernel has no keyrings");
                return Ok(());
            }
            Err(errno) if self.plan().access().requires(Wall::Keyring) => {
                return Err(StepError::new("join a new session keyring", "", errno));
            }
            // 200 keys per user (keyrings(7)).
            Err(Errno::EDQUOT) => "the user's key quota is used up",
            // An outer filter, as a container's, that knows nothing of keyrings.
            Err(_) => "the host refuses a new one",
        };
        let detail = format!("{shared}: that of the launcher is shared; seccomp denies keyctl");
        self.wall(Wall::Keyring, Strength::Weaker, &detail);
        Ok(())
    }

    /// Makes the payload's terminal out of the sandbox's own devpts and hands its other side out.
    ///
    /// It belongs to pid 1's session, so that the payload's process group has a parent in its own
    /// session: in an orphaned group the kernel ignores Ctrl-Z.
    fn terminal(&mut self) -> Done {
        let Begin::Now(Start { terminal: Some(socket), .. }) = &self.launch.begin else {
            return Ok(());
        };
        let step = "make a terminal";
        let flags = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
        let master = openat(self.root()?, "dev/pts/ptmx", flags, Mode::empty()).at(step, "")?;
        kernel::unlock_terminal(master.as_fd()).at(step, "")?;
        let peer = kernel::terminal_peer(master.as_fd()).at(step, "")?;
        kernel::claim_terminal(peer.as_fd()).at(step, "")?;
        let step = "hand out the terminal";
        kernel::send_message(socket.as_fd(), b"terminal", &[master.as_fd()]).at(step, "")?;
        // Until it has the size and the modes of the caller's terminal.
        if kernel::receive_message(socket.as_fd()).at(step, "")?.is_none() {
            return Err(StepError::new(step, "(nobody took it)", Errno::EPIPE));
        }
        self.terminal = Some(peer);
        Ok(())
    }

    fn open_namespace_limits(&mut self) -> Done {
        self.limits = NamespaceLimits::open()?;
        Ok(())
    }

    fn landlock(&mut self) -> Done {
        let report = landlock::enter(self.plan().access())?;
        self.walls.push(report);
        Ok(())
    }

    fn active(&mut self, wall: Wall, detail: &str) {
        self.wall(wall, Strength::Active, detail);
    }

    fn wall(&mut self, wall: Wall, strength: Strength, detail: &str) {
        self.walls.push(WallReport { wall, strength, detail: detail.to_owned() });
    }

    fn tell_ready(&mut self) -> Done {
        let (walls, steps) = (std::mem::take(&mut self.walls), std::mem::take(&mut self.took));
        let report = self.report()?;
        if self.launch.timed {
            Report::Took { steps }.send(report).at("report", "")?;
        }
        Report::Ready { walls }.send(report).at("report", "")
    }

    fn report(&self) -> Result<&File, StepError> {
        match &self.line {
            Line::Report(report) => Ok(report),
            Line::Order(_) => Err(StepError::new("report", "", Errno::ENOTRECOVERABLE)),
        }
    }

    /// Starts the payload and becomes the reaper.
    fn start_payload(&mut self) -> Result<std::convert::Infallible, StepError> {
        let access = self.plan().access();
        let filter = filter(access.wearer, access.profile);
        let own_filter = self::filter(Wearer::Init, access.profile);
        self.report_walls();
        init::block_signals().at("block signals", "")?;
        let terminal = self.terminal.is_some();
        removal::keep_capabilities();
        // The payload inherits it. So it cannot run before it wears one, nor beside a pid 1 without.
        if removal::stands(Part::Seccomp) {
            kernel::load_filter(filter).at("load the system-call filter", "")?;
        }
        // Over the payload's, which it wears already.
        let wear_own = || match removal::stands(Part::Seccomp) {
            true => kernel::load_filter(own_filter).at("load pid 1's system-call filter", ""),
            false => Ok(()),
        };
        // Before the program starts where there is time; else beside it.
        let ahead = matches!(self.line, Line::Order(_));
        let worn = Cell::new(Ok(()));
        let meanwhile = || {
            if ahead {
                worn.set(wear_own());
            }
        };
        let payload = kernel::spawn_sharing(meanwhile, || match worn.replace(Ok(())) {
            Ok(()) => self.become_payload(terminal),
            Err(error) => self.fail(error),
        });
        let payload = payload.at("start the payload", "")?;
        if !ahead {
            wear_own()?;
        }
        // It has ended before it was told what to run.
        let Some(started) = self.own.begun else { kernel::exit_now(1) };
        let watched = self.launch.watch_memory && removal::stands(Part::Watch);
        let watch = watched.then(|| watch(self.plan())).flatten();
        let signals = init::signals().at("wait for signals", "")?;
        let (signals, go, report) = (&signals, self.own.go.take(), self.report()?);
        Reaper { payload, terminal, started, report, signals, go, watch }.run()
    }

    /// The payload's process, in pid 1's memory until it executes its program.
    fn become_payload(&mut self, terminal: bool) -> i32 {
        let launch = self.launch;
        let steps = removal::standing(steps::payload(&launch.plan, terminal).into());
        if let Err(error) = steps.iter().try_for_each(|step| self.enact_timed(step)) {
            self.fail(error)
        }
        let (program, errno) = payload::execute(self.command());
        let program = program.to_string_lossy().into_owned();
        let told = self
            .report()
            .map(|report| Report::NotExecuted { program, errno: errno as i32 }.send(report));
        if matches!(told, Ok(Ok(_))) { 127 } else { 1 }
    }

    fn report_walls(&mut self) {
        let access = self.plan().access().clone();
        let nested = match access.proc {
            ProcMode::Fresh => "nested ones refused by a limit of 0 and by seccomp",
            ProcMode::None => "nested ones refused by seccomp alone: without /proc no limit is set",
        };
        self.active(
            Wall::Namespaces,
            &format!("user, pid, mount, network, ipc, uts, cgroup; {nested}"),
        );
        let identity = privilege::identity_wall(self.plan().identity(), self.parent.root_group);
        self.walls.push(identity);
        self.active(Wall::Capabilities, "all five sets empty, no_new_privs set");
        self.active(
            Wall::Seccomp,
            &format!("allow-list {}, profile {}", wearer_name(access.wearer), access.profile),
        );
        let told = match access.proc {
            ProcMode::Fresh => {
                "; /proc tells the machine's version, processors, load, uptime, memory"
            }
            ProcMode::None => "",
        };
        self.active(
            Wall::Mounts,
            &format!("private, read-only but for sized tmpfs, nosuid, nodev{told}"),
        );
        self.active(
            Wall::Rlimits,
            "processes, file size, open files, locked memory, no core dumps",
        );
        self.walls.sort_by_key(|report| Wall::ALL.iter().position(|wall| *wall == report.wall));
    }
}

/// The memory watch of a plan. Without `/proc` there is nothing to watch.
fn watch(plan: &Plan) -> Option<MemoryWatch> {
    (plan.access().proc == ProcMode::Fresh).then(|| memory_watch::of(plan))
}

pub(crate) fn wearer_name(wearer: Wearer) -> String {
    format!("{wearer:?}").to_lowercase()
}
