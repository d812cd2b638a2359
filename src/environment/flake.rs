//! Environments that Nix builds when the program runs: the flake references of `NIX_SANDBOX_ENVS`.
//!
//! A [`Build`] goes from waiting over building to ready or failed, once. A server begins all of them
//! at once, each on a thread of its own, and goes on; the command line builds the one that it needs
//! before it has any thread. What was built is a garbage-collector root below the user's state
//! directory, so that no collection pulls a closure away.

use std::fmt;
use std::fs;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, Flock, FlockArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::artifact::{Artifact, is_name};
use super::store::nix_program;
use super::{Environment, Sources};

/// Bytes of what Nix says last that are kept.
const TAIL: usize = 8 << 10;
/// Lines of it that whoever waits is told when a build fails.
const LINES: usize = 12;
/// Bytes of an answer of Nix's, such as a flake's metadata.
const MOST: usize = 4 << 20;
/// How often whoever waits is told what Nix says: for people.
const TOLD_EVERY: u16 = 500;

/// A flake reference, and what its environment is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flake {
    /// As it was given: `github:me/envs#data-science`.
    reference: String,
    name: String,
}

impl FromStr for Flake {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let reference = text.trim();
        if reference.is_empty() {
            return Err("holds an empty flake reference".to_owned());
        }
        // It becomes an argument of `nix`: nothing in it may be taken for an option.
        let odd = |c: char| c.is_whitespace() || c.is_control();
        if reference.starts_with('-') || reference.contains(odd) {
            return Err(format!("holds {reference:?}, which is no flake reference"));
        }
        let name = name_of(reference);
        if !is_name(&name) {
            return Err(format!(
                "holds {reference:?}, which gives no name: after `#` there must be one of 1 to 64 \
                 letters, digits, `_`, `.` or `-`"
            ));
        }
        Ok(Self { reference: reference.to_owned(), name })
    }
}

/// The last part of what is built, else the last part of where the flake lies.
fn name_of(reference: &str) -> String {
    let (base, attribute) = reference.split_once('#').unwrap_or((reference, ""));
    let attribute = attribute.split('^').next().unwrap_or_default();
    let last = attribute.rsplit('.').next().filter(|last| !last.is_empty());
    let base = base.split('?').next().unwrap_or_default().trim_end_matches('/');
    last.unwrap_or_else(|| base.rsplit(['/', ':']).next().unwrap_or_default()).to_owned()
}

impl Flake {
    /// What its environment is called.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// As it was given.
    #[must_use]
    pub fn reference(&self) -> &str {
        &self.reference
    }

    /// A file beside its root: two references of one name have two roots.
    fn place(&self, roots: &Path, suffix: &str) -> PathBuf {
        let digest = Sha256::digest(self.reference.as_bytes());
        let short: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        roots.join(format!("{}-{short}{suffix}", self.name))
    }
}

/// What was built from which sources: enough to build it again elsewhere.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Lock {
    /// The reference as it was given.
    #[serde(rename = "ref")]
    pub reference: String,
    /// What it was locked to: `locked` of `nix flake metadata` (revision, `narHash`, …).
    pub locked: serde_json::Value,
}

/// How far a build is.
#[derive(Debug, Clone)]
pub enum State {
    /// Nobody has begun it in this process.
    Waiting,
    /// Nix works on it; what it said last.
    Building(String),
    /// The environment.
    Ready(Arc<Environment>),
    /// Why there is none.
    Failed(String),
}

/// The build of one environment.
#[derive(Debug)]
pub struct Build {
    flake: Flake,
    state: Mutex<State>,
    begun: AtomicBool,
    /// Readable once it is ready or failed.
    done: EventFd,
    /// Who works on it.
    worker: Mutex<Worker>,
}

/// Who works on a build.
#[derive(Debug, Clone, Copy)]
enum Worker {
    /// Nobody now.
    Nobody,
    /// A process group.
    Group(Pid),
    /// Nobody any more.
    Stopped,
}

/// Why a build was not waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cancelled;

impl Build {
    /// One that nobody has begun.
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE`.
    pub fn new(flake: Flake) -> nix::Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        Ok(Self {
            flake,
            state: Mutex::new(State::Waiting),
            begun: AtomicBool::new(false),
            done: EventFd::from_value_and_flags(0, flags)?,
            worker: Mutex::new(Worker::Nobody),
        })
    }

    /// What is built.
    #[must_use]
    pub const fn flake(&self) -> &Flake {
        &self.flake
    }

    /// Begins it on a thread of its own, if nobody has.
    pub fn begin(self: &Arc<Self>, sources: &Sources) {
        if self.begun.swap(true, Ordering::SeqCst) {
            return;
        }
        let (own, sources) = (Arc::clone(self), sources.clone());
        self.set(State::Building(String::new()));
        let thread = std::thread::Builder::new().name("nix-build".to_owned());
        if let Err(error) = thread.spawn(move || own.run(&sources, None)) {
            self.finish(State::Failed(format!("no thread is left to build it: {error}")));
        }
    }

    /// How far it is. Where nobody has begun it here, as far as the state directory tells.
    #[must_use]
    pub fn state(&self, sources: &Sources) -> State {
        let state = lock(&self.state).clone();
        match (state, &sources.roots) {
            (State::Waiting, Some(roots)) => self.glance(roots, sources),
            (state, _) => state,
        }
    }

    /// Waits until it is ready or failed; builds it on this thread if nobody has begun it. Meanwhile
    /// `tell` gets what Nix said last.
    ///
    /// # Errors
    /// `cancel` became readable before.
    pub fn wait(
        &self,
        sources: &Sources,
        cancel: Option<BorrowedFd<'_>>,
        tell: &dyn Fn(&str),
    ) -> Result<State, Cancelled> {
        loop {
            if !self.begun.swap(true, Ordering::SeqCst) {
                self.set(State::Building(String::new()));
                self.run(sources, cancel);
            }
            let state = lock(&self.state).clone();
            match state {
                State::Building(line) => tell(&line),
                State::Waiting => {}
                State::Ready(_) | State::Failed(_) => return Ok(state),
            }
            let mut fds = vec![PollFd::new(self.done.as_fd(), PollFlags::POLLIN)];
            fds.extend(cancel.map(|cancel| PollFd::new(cancel, PollFlags::POLLIN)));
            // A failure here would be one of poll(2) itself; the next turn meets it again.
            let _ = poll(&mut fds, PollTimeout::from(TOLD_EVERY));
            let cancelled = fds.get(1).and_then(PollFd::revents);
            if cancelled.is_some_and(|flags| !flags.is_empty()) {
                return Err(Cancelled);
            }
        }
    }

    /// Ends what works on it, for good.
    pub fn stop(&self) {
        let mut worker = lock(&self.worker);
        if let Worker::Group(group) = *worker {
            // ESRCH: it has just ended.
            let _ = killpg(group, Signal::SIGKILL);
        }
        *worker = Worker::Stopped;
    }

    fn set(&self, state: State) {
        *lock(&self.state) = state;
    }

    fn finish(&self, state: State) {
        self.set(state);
        // A counter that is full is on already.
        let _ = self.done.write(1);
    }

    fn run(&self, sources: &Sources, cancel: Option<BorrowedFd<'_>>) {
        match self.build(sources, cancel) {
            Ok(environment) => self.finish(State::Ready(Arc::new(environment))),
            Err(FlakeError::Cancelled) if !self.is_stopped() => {
                self.set(State::Waiting);
                // Whoever else waits for it begins anew.
                self.begun.store(false, Ordering::SeqCst);
            }
            Err(error) => self.finish(State::Failed(error.to_string())),
        }
    }

    fn build(
        &self,
        sources: &Sources,
        cancel: Option<BorrowedFd<'_>>,
    ) -> Result<Environment, FlakeError> {
        let roots = sources.roots.as_deref().ok_or(FlakeError::NoState)?;
        let io = |error| FlakeError::State { path: roots.to_owned(), error };
        fs::create_dir_all(roots).map_err(io)?;
        let root = self.flake.place(roots, "");
        let failed = self.flake.place(roots, ".failed");
        let file = fs::File::create(self.flake.place(roots, ".lock")).map_err(io)?;
        // For others to see that it is built; Nix has locks of its own.
        let _held = Flock::lock(file, FlockArg::LockExclusiveNonblock);
        let built = self.make(sources, &root, cancel);
        let told = match &built {
            Ok(()) => fs::remove_file(&failed).or_else(absent),
            // Nothing is wrong with it.
            Err(FlakeError::Cancelled) => Ok(()),
            Err(error) => fs::write(&failed, error.to_string()),
        };
        told.map_err(io)?;
        built?;
        self.environment(&root, sources)
    }

    /// Has Nix build it and keep it at `root`.
    fn make(
        &self,
        sources: &Sources,
        root: &Path,
        cancel: Option<BorrowedFd<'_>>,
    ) -> Result<(), FlakeError> {
        let program = nix_program(sources, "nix").ok_or(FlakeError::NoNix)?;
        let reference = self.flake.reference.as_str();
        let base = reference.split('#').next().unwrap_or_default();
        let asked = ["flake", "metadata", "--json", "--no-write-lock-file", base];
        let metadata = self.nix(&program, sources, &asked.map(Into::into), cancel)?;
        let words: Vec<std::ffi::OsString> = vec![
            "build".into(),
            "--print-build-logs".into(),
            "--no-write-lock-file".into(),
            "--out-link".into(),
            root.into(),
            reference.into(),
        ];
        self.nix(&program, sources, &words, cancel)?;
        let locked = serde_json::from_slice::<serde_json::Value>(&metadata).unwrap_or_default();
        let lock = Lock { reference: reference.to_owned(), locked: locked["locked"].clone() };
        let text = serde_json::to_string(&lock).unwrap_or_default();
        let path = lock_file(root);
        fs::write(&path, text).map_err(|error| FlakeError::State { path, error })
    }

    /// What was built, as an environment of the name that callers know.
    fn environment(&self, root: &Path, sources: &Sources) -> Result<Environment, FlakeError> {
        let artifact = Artifact::read(root, sources)
            .and_then(|artifact| artifact.resolve(sources))
            .map_err(|error| FlakeError::Artifact(error.to_string()));
        let mut environment = artifact?;
        environment.name.clone_from(&self.flake.name);
        if let Some(receipt) = &mut environment.receipt {
            let text = fs::read(lock_file(root)).unwrap_or_default();
            receipt.flake = serde_json::from_slice(&text).ok();
        }
        Ok(environment)
    }

    /// What the state directory tells of a build that this process has not begun.
    fn glance(&self, roots: &Path, sources: &Sources) -> State {
        let file = fs::File::open(self.flake.place(roots, ".lock"));
        let free = |file| Flock::lock(file, FlockArg::LockSharedNonblock).is_ok();
        if !file.map_or(true, free) {
            return State::Building(String::new());
        }
        if let Ok(reason) = fs::read_to_string(self.flake.place(roots, ".failed")) {
            return State::Failed(reason);
        }
        let built = self.environment(&self.flake.place(roots, ""), sources);
        built.map_or(State::Waiting, |environment| State::Ready(Arc::new(environment)))
    }

    /// Runs Nix to its end. What it answers; what it says meanwhile is this build's newest line.
    fn nix(
        &self,
        program: &Path,
        sources: &Sources,
        words: &[std::ffi::OsString],
        cancel: Option<BorrowedFd<'_>>,
    ) -> Result<Vec<u8>, FlakeError> {
        let failed = FlakeError::Start;
        let mut command = Command::new(program);
        command.args(["--extra-experimental-features", "nix-command flakes"]);
        if let Some(root) = &sources.store_root {
            command.arg("--store").arg(root);
        }
        command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // So that what it starts ends with it.
        command.process_group(0);
        let (mut child, group) = self.spawn(&mut command)?;
        let heard = self.listen(&mut child, cancel);
        if heard.is_err() {
            let _ = killpg(group, Signal::SIGKILL);
        }
        let status = child.wait().map_err(failed);
        self.release();
        if self.is_stopped() {
            return Err(FlakeError::Cancelled);
        }
        let Heard { answer, said } = heard?;
        let status = status?;
        if status.success() {
            return Ok(answer);
        }
        Err(FlakeError::Failed { status, said: last_lines(&said) })
    }

    /// Under one lock, so that whoever stops it meets either nobody who begins or a group to kill.
    fn spawn(&self, command: &mut Command) -> Result<(Child, Pid), FlakeError> {
        let mut worker = lock(&self.worker);
        if matches!(*worker, Worker::Stopped) {
            return Err(FlakeError::Cancelled);
        }
        let child = command.spawn().map_err(FlakeError::Start)?;
        let group = Pid::from_raw(i32::try_from(child.id()).unwrap_or(i32::MAX));
        *worker = Worker::Group(group);
        Ok((child, group))
    }

    /// Its process has ended.
    fn release(&self) {
        let mut worker = lock(&self.worker);
        if matches!(*worker, Worker::Group(_)) {
            *worker = Worker::Nobody;
        }
    }

    fn is_stopped(&self) -> bool {
        matches!(*lock(&self.worker), Worker::Stopped)
    }

    fn listen(
        &self,
        child: &mut Child,
        cancel: Option<BorrowedFd<'_>>,
    ) -> Result<Heard, FlakeError> {
        let (Some(out), Some(err)) = (child.stdout.take(), child.stderr.take()) else {
            return Err(FlakeError::Start(io::ErrorKind::BrokenPipe.into()));
        };
        for fd in [out.as_fd(), err.as_fd()] {
            let flags = FcntlArg::F_SETFL(OFlag::O_NONBLOCK);
            fcntl(fd, flags).map_err(|errno| FlakeError::Start(errno.into()))?;
        }
        let mut heard = Heard::default();
        let (mut out, mut err) = (Some(out), Some(err));
        while out.is_some() || err.is_some() {
            wait_for(out.as_ref(), err.as_ref(), cancel)?;
            if heard.answer(&mut out)? | heard.said(&mut err)? {
                self.set(State::Building(newest_line(&heard.said)));
            }
        }
        Ok(heard)
    }
}

impl Drop for Build {
    fn drop(&mut self) {
        self.stop();
    }
}

fn absent(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

fn lock_file(root: &Path) -> PathBuf {
    let mut path = root.as_os_str().to_owned();
    path.push(".json");
    PathBuf::from(path)
}

/// Waits until Nix says something.
fn wait_for(
    out: Option<&ChildStdout>,
    err: Option<&ChildStderr>,
    cancel: Option<BorrowedFd<'_>>,
) -> Result<(), FlakeError> {
    let own = [out.map(AsFd::as_fd), err.map(AsFd::as_fd), cancel];
    let mut fds: Vec<_> =
        own.into_iter().flatten().map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
    match poll(&mut fds, PollTimeout::NONE) {
        Ok(_) | Err(Errno::EINTR) => {}
        Err(errno) => return Err(FlakeError::Start(errno.into())),
    }
    let last = fds.last().filter(|_| cancel.is_some()).and_then(PollFd::revents);
    if last.is_some_and(|flags| !flags.is_empty()) {
        return Err(FlakeError::Cancelled);
    }
    Ok(())
}

/// What Nix answered, and the end of what it said besides.
#[derive(Default)]
struct Heard {
    answer: Vec<u8>,
    said: Vec<u8>,
}

impl Heard {
    fn answer(&mut self, from: &mut Option<ChildStdout>) -> Result<bool, FlakeError> {
        let came = drain(from, &mut self.answer)?;
        if self.answer.len() > MOST {
            return Err(FlakeError::Start(io::Error::other("it wrote too much")));
        }
        Ok(came)
    }

    fn said(&mut self, from: &mut Option<ChildStderr>) -> Result<bool, FlakeError> {
        let came = drain(from, &mut self.said)?;
        let surplus = self.said.len().saturating_sub(TAIL);
        self.said.drain(..surplus);
        Ok(came)
    }
}

/// Takes a chunk of what is there; whether there was something.
fn drain<R: Read>(from: &mut Option<R>, to: &mut Vec<u8>) -> Result<bool, FlakeError> {
    let mut chunk = [0; 8192];
    let Some(end) = from else { return Ok(false) };
    match end.read(&mut chunk) {
        Ok(0) => *from = None,
        Ok(length) => {
            to.extend_from_slice(&chunk[..length]);
            return Ok(true);
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
        Err(error) => return Err(FlakeError::Start(error)),
    }
    Ok(false)
}

fn newest_line(said: &[u8]) -> String {
    let text = String::from_utf8_lossy(said);
    text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default().trim().to_owned()
}

fn last_lines(said: &[u8]) -> String {
    let text = String::from_utf8_lossy(said);
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(LINES)..].join("\n")
}

/// Why there is no environment.
#[derive(Debug, thiserror::Error)]
enum FlakeError {
    #[error(
        "there is no program `nix` in PATH; install Nix, or build the environment elsewhere and put it into NIX_SANDBOX_DIR"
    )]
    NoNix,
    #[error("there is no place for what is built: set HOME or XDG_STATE_HOME")]
    NoState,
    #[error("{}: {error}", path.display())]
    State { path: PathBuf, error: io::Error },
    #[error("`nix` could not be run: {0}")]
    Start(io::Error),
    #[error("cancelled before it was built")]
    Cancelled,
    #[error("`nix` failed{}", after(said, *status))]
    Failed { status: std::process::ExitStatus, said: String },
    #[error("what was built is no environment: {0}")]
    Artifact(String),
}

/// The first line is all that some readers show.
fn after(said: &str, status: std::process::ExitStatus) -> String {
    let told = said.lines().find(|line| line.starts_with("error:"));
    match told.or(said.lines().next_back()) {
        Some(why) => format!(": {why}\n{status}; its last lines:\n{said}"),
        None => format!(" with {status}"),
    }
}

impl fmt::Display for Flake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reference)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
