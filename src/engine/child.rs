//! Pid 1 enacts the steps.
//!
//! This code runs after the clone, in a process with one thread: ordinary Rust is allowed. It
//! returns to nobody: it ends in `init::run` or in `_exit`.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::path::Path;
use std::time::Instant;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::{Mode, SFlag, fstat, mkdirat};
use nix::unistd::{mkfifoat, symlinkat};

use super::filters::filter;
use super::init::{self, Reaper};
use super::landlock;
use super::masks::{self, Covers, NamespaceLimits};
use super::memory_watch::{self, MemoryWatch};
use super::removal::{self, Part};
use super::report::{At, Done, Report, StepError};
use super::start::{self, Begin, CodePlace, LATER, Start};
use super::steps::{self, Ahead, Device, PTS, SHARED_MEMORY, Step, steps};
use super::{Launch, outputs, payload, process};
use crate::kernel::{self, Arguments, Attributes};
use crate::outcome::{Strength, WallReport};
use crate::plan::{Command, HostFile, Identity, Plan, ProcMode, Wall};
use crate::policy::Wearer;
use crate::request::Request;

/// Read-only parts of the host.
const SHOWN: Attributes = Attributes::RDONLY.and(Attributes::NOSUID).and(Attributes::NODEV);
/// Writable memory.
const WRITABLE: Attributes = Attributes::NOSUID.and(Attributes::NODEV);
/// The file system of the code, bytes: the code and what describes it.
const CODE: u64 = Request::MAX_CODE as u64 + (64 << 10);
/// Memory that holds no program.
const DATA: Attributes = WRITABLE.and(Attributes::NOEXEC);

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

/// What is kept for a payload that is started later.
#[derive(Default)]
struct Own {
    /// Its code's file.
    code: Option<File>,
    /// The same, if it is written later, by whoever has the code.
    code_place: Option<CodePlace>,
    /// What says that the code has come.
    go: Option<OwnedFd>,
    /// Its `/workspace`.
    workspace: Option<OwnedFd>,
    /// What came with the order. Never dropped: its descriptors were given other numbers.
    start: Option<Start>,
    /// What to run.
    command: Option<Command>,
    /// Since when there is something to run.
    begun: Option<Instant>,
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
            Step::SealRoot => {
                kernel::set_attributes(self.root()?, SHOWN, false).at("make the root read-only", "")
            }
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

    fn new_root(&mut self, inodes: u64) -> Done {
        let step = "make the root file system";
        let options = [
            ("size", "64m".to_owned()),
            ("nr_inodes", inodes.to_string()),
            ("mode", "0755".to_owned()),
        ];
        let root = kernel::new_filesystem("tmpfs", &options, WRITABLE).at(step, "")?;
        // Attached where the host's /proc was: it exists (the id maps were just written there),
        // nothing of the plan lies below it, and a fresh procfs is judged by the mounts *on* it.
        let proc =
            open("/proc", OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())
                .at(step, "")?;
        kernel::move_onto(root.as_fd(), proc.as_fd(), Path::new("")).at(step, "")?;
        self.root = Some(root);
        Ok(())
    }

    fn in_template(&mut self) -> Done {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        self.root = Some(open("/", flags, Mode::empty()).at("enter the template", "")?);
        Ok(())
    }

    /// Makes the parents of `at`; returns `at` relative to the root.
    fn parents<'p>(&self, at: &'p Path) -> Result<&'p Path, StepError> {
        let relative = at.strip_prefix("/").unwrap_or(at);
        above(relative).map_or(Ok(()), |parent| self.mkdir(parent))?;
        Ok(relative)
    }

    /// A directory, and what is missing above it: most often nothing.
    fn mkdir(&self, relative: &Path) -> Done {
        let root = self.root()?;
        let make = || match mkdirat(root, relative, Mode::from_bits_truncate(0o755)) {
            Ok(()) | Err(Errno::EEXIST) => Ok(()),
            Err(errno) => Err(errno),
        };
        let made = match (make(), above(relative)) {
            (Err(Errno::ENOENT), Some(parent)) => {
                self.mkdir(parent)?;
                make()
            }
            (made, _) => made,
        };
        made.at("make directory", relative.display())
    }

    fn directory(&self, at: &Path) -> Done {
        self.mkdir(self.parents(at)?)
    }

    fn symlink(&self, at: &Path, target: &Path) -> Done {
        let relative = self.parents(at)?;
        symlinkat(target, self.root()?, relative).at("make symbolic link", at.display())
    }

    fn create(&self, at: &Path) -> Result<File, StepError> {
        let relative = self.parents(at)?;
        new_file(self.root()?, relative.as_os_str()).at("make file", at.display())
    }

    fn file(&self, at: &Path, content: &[u8]) -> Done {
        self.create(at)?.write_all(content).at("write file", at.display())
    }

    /// On a file system of its own, since the root may be a template's.
    fn code(&mut self, at: &Path) -> Done {
        let step = "copy the code to";
        let (Some(directory), Some(name)) = (at.parent(), at.file_name()) else {
            return Err(StepError::new(step, at.display(), Errno::EINVAL));
        };
        let tree = self.tmpfs(directory, CODE, 4, 0o755, WRITABLE)?;
        // Through a second mount, or the first could not be sealed while it is open.
        let second =
            || kernel::clone_tree(tree.as_fd(), Path::new(""), false).at(step, at.display());
        match &self.launch.begin {
            Begin::Now(start) => {
                copy_code(start, &mut new_file(tree.as_fd(), name).at(step, at.display())?)?;
            }
            Begin::Ordered { warm: false, .. } => {
                self.own.code = Some(new_file(second()?.as_fd(), name).at(step, at.display())?);
            }
            Begin::Ordered { warm: true, .. } => {
                let directory = second()?;
                let file = new_file(directory.as_fd(), LATER.as_ref()).at(step, at.display())?;
                // To be opened by whoever has the code, outside.
                let mode = Mode::from_bits_truncate(0o644);
                mkfifoat(&directory, name, mode).at("make a FIFO", at.display())?;
                self.own.code_place = Some(CodePlace { file, directory });
            }
        }
        kernel::set_attributes(tree.as_fd(), SHOWN, false).at("make read-only", directory.display())
    }

    fn bind(&self, at: &Path, source: &HostFile, number: usize) -> Done {
        let shown = source.path.display();
        let tree = match self.launch.sources.get(number) {
            Some(passed) => passed.try_clone().at("mount", &shown)?,
            None => open_source(source)?,
        };
        kernel::set_attributes(tree.as_fd(), removal::attributes(SHOWN), true)
            .at("mount read-only", &shown)?;
        let relative = self.parents(at)?;
        if source.directory {
            self.mkdir(relative)?;
        } else {
            self.create(at)?;
        }
        kernel::move_onto(tree.as_fd(), self.root()?, relative)
            .at("mount", format_args!("{shown} at {}", at.display()))
    }

    fn tmpfs(
        &self,
        at: &Path,
        size: u64,
        inodes: u64,
        mode: u32,
        attributes: Attributes,
    ) -> Result<OwnedFd, StepError> {
        let step = "mount a tmpfs at";
        let options = [
            ("size", size.to_string()),
            ("nr_inodes", inodes.to_string()),
            ("mode", format!("{mode:o}")),
        ];
        let tree = kernel::new_filesystem("tmpfs", &options, attributes).at(step, at.display())?;
        self.attach(&tree, at, step)?;
        Ok(tree)
    }

    fn outputs(&self, at: &Path) -> Done {
        let step = "mount the outputs at";
        let made = self.parent.outputs.ok_or(Errno::ENODEV).at(step, at.display())?;
        let tree = outputs::open_copy(made).at(step, at.display())?;
        self.attach(&tree, at, step)
    }

    /// Whoever looks into `/workspace` from outside gets a descriptor instead of a path: it names
    /// this very file system, whatever the payload does, and keeps it after the sandbox has ended.
    fn hand_out_workspace(&mut self) -> Done {
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

    fn attach(&self, tree: &OwnedFd, at: &Path, step: &str) -> Done {
        let relative = self.parents(at)?;
        self.mkdir(relative)?;
        kernel::move_onto(tree.as_fd(), self.root()?, relative).at(step, at.display())
    }

    fn make_covers(&self) -> Done {
        let place = Path::new(PTS);
        drop(self.create(&place.join(masks::FILE))?);
        self.directory(&place.join(masks::DIRECTORY))
    }

    fn open_covers(&mut self) -> Done {
        let place = Path::new(PTS).strip_prefix("/").unwrap_or(Path::new(PTS));
        self.covers = Some(Covers::open(self.root()?, place)?);
        Ok(())
    }

    fn proc(&self) -> Done {
        let step = "mount a fresh procfs at";
        let at = Path::new("/proc");
        let tree = kernel::new_filesystem("proc", &[], DATA).at(step, at.display())?;
        self.attach(&tree, at, step)
    }

    fn device(&self, device: &Device) -> Done {
        let path = format!("/dev/{}", device.name);
        let step = "mount device";
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let node = open(path.as_str(), flags, Mode::empty()).at(step, &path)?;
        // A name is no proof: a link or a file planted at /dev/null would be shown inside
        // (CVE-2025-31133).
        let stat = fstat(&node).at(step, &path)?;
        let is_device =
            SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits()) == SFlag::S_IFCHR;
        if !is_device || stat.st_rdev != nix::sys::stat::makedev(device.major, device.minor) {
            return Err(StepError::new(
                step,
                format_args!("{path} (it is another device)"),
                Errno::ENODEV,
            ));
        }
        let tree = kernel::clone_tree(node.as_fd(), Path::new(""), false).at(step, &path)?;
        let attributes = Attributes::NOSUID.and(Attributes::NOEXEC);
        kernel::set_attributes(tree.as_fd(), attributes, false).at(step, &path)?;
        drop(self.create(Path::new(&path))?);
        kernel::move_onto(tree.as_fd(), self.root()?, Path::new(&path[1..])).at(step, &path)
    }

    fn device_links(&self) -> Done {
        let links = [
            ("/dev/fd", "/proc/self/fd"),
            ("/dev/stdin", "/proc/self/fd/0"),
            ("/dev/stdout", "/proc/self/fd/1"),
            ("/dev/stderr", "/proc/self/fd/2"),
            ("/dev/ptmx", "pts/ptmx"),
        ];
        links.iter().try_for_each(|(at, target)| self.symlink(Path::new(at), Path::new(target)))
    }

    fn pts(&self) -> Done {
        let step = "mount a devpts at";
        let at = Path::new(PTS);
        let options = [
            ("newinstance", String::new()),
            ("ptmxmode", "0666".to_owned()),
            ("mode", "0620".to_owned()),
            ("max", "64".to_owned()),
        ];
        let attributes = Attributes::NOSUID.and(Attributes::NOEXEC);
        let tree = kernel::new_filesystem("devpts", &options, attributes).at(step, at.display())?;
        self.attach(&tree, at, step)
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

    fn mask_proc(&mut self) -> Done {
        match self.covers.take() {
            Some(covers) => covers.mask(self.root()?),
            None => Err(StepError::new("mask", "(without a cover)", Errno::ENOTRECOVERABLE)),
        }
    }

    /// The payload's streams to 0, 1, 2, a session's control pipes to 3 and 4, the report pipe to
    /// the next number, and nothing else. Where those come later, what is needed until then.
    fn place_descriptors(&mut self) -> Done {
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
    fn speak_through(&mut self, line: Line) {
        let _number_only = match std::mem::replace(&mut self.line, line) {
            Line::Report(report) => report.into_raw_fd(),
            Line::Order(order) => order.into_raw_fd(),
        };
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

    /// Waits for the order, if the launch was ahead of it. Until then nobody's code has run here.
    fn await_order(&mut self) -> Done {
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
        // Over the payload's, which it wears already: without it nothing is lost but depth, so a
        // refusal does not end the run.
        let wear_own = || {
            if removal::stands(Part::Seccomp) {
                let _ = kernel::load_filter(own_filter);
            }
        };
        // Before the program starts where there is time; else beside it.
        let ahead = matches!(self.line, Line::Order(_));
        let meanwhile = || {
            if ahead {
                wear_own();
            }
        };
        let payload = kernel::spawn_sharing(meanwhile, || self.become_payload(terminal));
        let payload = payload.at("start the payload", "")?;
        if !ahead {
            wear_own();
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
        let Identity { inside, outside, .. } = self.plan().identity().clone();
        let access = self.plan().access().clone();
        let nested = match access.proc {
            ProcMode::Fresh => "nested ones refused by a limit of 0 and by seccomp",
            ProcMode::None => "nested ones refused by seccomp alone: without /proc no limit is set",
        };
        self.active(
            Wall::Namespaces,
            &format!("user, pid, mount, network, ipc, uts, cgroup; {nested}"),
        );
        self.active(
            Wall::Identity,
            &format!("uid {} inside is uid {} of the host", inside.uid, outside.uid),
        );
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

/// Opens a bind's source and makes sure that it is what was checked (CVE-2018-15664).
fn open_source(source: &HostFile) -> Result<OwnedFd, StepError> {
    let shown = source.path.display();
    let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let file = open(&source.path, flags, Mode::empty()).at("open", &shown)?;
    let stat = fstat(&file).at("open", &shown)?;
    if (stat.st_dev, stat.st_ino) != (source.identity.device, source.identity.inode) {
        let changed = format!("{shown} (it was replaced after it was checked)");
        return Err(StepError::new("open", changed, Errno::ESTALE));
    }
    kernel::clone_tree(file.as_fd(), Path::new(""), true).at("mount", &shown)
}

/// The payload's streams and control pipes, then the report pipe and what says that the code has
/// come, which are returned.
fn place(
    start: &Start,
    terminal: Option<&OwnedFd>,
) -> Result<(OwnedFd, Option<OwnedFd>), StepError> {
    let mut payload = match terminal {
        Some(terminal) => vec![terminal.as_fd(); 3],
        None => start.stdio.iter().map(AsFd::as_fd).collect(),
    };
    payload.extend(start.control.iter().flatten().map(AsFd::as_fd));
    let own: Vec<BorrowedFd<'_>> =
        [&start.report].into_iter().chain(&start.go).map(AsFd::as_fd).collect();
    let mut kept = kernel::keep_only(&payload, &own).at("place descriptors", "")?.into_iter();
    let report = kept.next().ok_or(Errno::EBADF).at("place descriptors", "")?;
    Ok((report, kept.next()))
}

/// What a relative path lies in, if not in the root itself.
fn above(relative: &Path) -> Option<&Path> {
    relative.parent().filter(|parent| !parent.as_os_str().is_empty())
}

fn new_file(below: BorrowedFd<'_>, name: &OsStr) -> nix::Result<File> {
    let flags = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_WRONLY | OFlag::O_CLOEXEC;
    openat(below, name, flags, Mode::from_bits_truncate(0o444)).map(File::from)
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

fn copy_code(start: &Start, to: &mut File) -> Done {
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
