//! Running the program: on pipes, and on a terminal.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::pty::{Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::{Termios, tcgetattr};
use nix::unistd::Pid;

#[path = "../support/slower.rs"]
mod slower;
pub(crate) use slower::{patience, seconds, slower};

/// Nothing here takes longer, on a busy machine and in a debug build.
pub(crate) fn soon() -> Duration {
    Duration::from_secs(20) * slower()
}

/// The program under test; `NIX_SANDBOX_BIN` names a copy that an ordinary user may execute.
pub(crate) fn program() -> PathBuf {
    std::env::var_os("NIX_SANDBOX_BIN")
        .map_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_nix-sandbox-mcp")), PathBuf::from)
}

pub(crate) fn command(words: &[&str]) -> Command {
    let mut command = Command::new(program());
    command.args(words).stdin(Stdio::null());
    clean(&mut command);
    command
}

/// Nothing of the tester's own settings.
fn clean(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if name.starts_with("NIX_SANDBOX_") || name.starts_with("PROJECT_") {
            command.env_remove(name);
        }
    }
}

pub(crate) fn output(words: &[&str]) -> Output {
    command(words).output().expect("started")
}

/// `exec -- sh -c SCRIPT`.
pub(crate) fn sh(script: &str) -> Output {
    let mut command = command(&["exec"]);
    command.args(patience(&[])).args(["--", "sh", "-c", script]).output().expect("started")
}

pub(crate) fn code(output: &Output) -> i32 {
    output.status.code().expect("an exit code")
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("text")
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("text")
}

/// With something to read.
pub(crate) fn fed(words: &[&str], input: &[u8]) -> Output {
    let mut child = command(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("started");
    let mut stdin = child.stdin.take().expect("stdin");
    let input = input.to_vec();
    let feeder = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().expect("ended");
    feeder.join().expect("fed");
    output
}

/// Until it holds.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + soon();
    while !holds() {
        assert!(Instant::now() < until, "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub(crate) fn send(child: &Child, signal: Signal) {
    kill(Pid::from_raw(child.id().cast_signed()), signal).expect("sent");
}

/// Whether what is written there would have to wait for somebody who reads.
pub(crate) fn is_full(to: &impl AsFd) -> bool {
    let mut fds = [PollFd::new(to.as_fd(), PollFlags::POLLOUT)];
    poll(&mut fds, PollTimeout::ZERO) == Ok(0)
}

/// Processes of this host with `mark` among their arguments, besides this one.
pub(crate) fn marked(mark: &str) -> Vec<String> {
    let own = std::process::id().to_string();
    let entries = std::fs::read_dir("/proc").expect("proc").filter_map(Result::ok);
    entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|pid| pid.bytes().all(|byte| byte.is_ascii_digit()) && *pid != own)
        .filter(|pid| {
            std::fs::read(format!("/proc/{pid}/cmdline"))
                .is_ok_and(|line| String::from_utf8_lossy(&line).contains(mark))
        })
        .collect()
}

/// A program on a terminal of the test's own.
pub(crate) struct Tty {
    pub(crate) child: Child,
    master: File,
    /// Held so that the terminal's modes can be read when the program has ended.
    slave: OwnedFd,
    pub(crate) seen: String,
    before: Termios,
}

pub(crate) const SIZE: Winsize = Winsize { ws_row: 33, ws_col: 101, ws_xpixel: 0, ws_ypixel: 0 };

impl Tty {
    /// The program, as the leader of the terminal's session.
    pub(crate) fn start(words: &[&str]) -> Self {
        let program = program();
        let mut all = vec![program.to_str().expect("text")];
        all.extend(words);
        Self::start_other(&all)
    }

    /// The program with `cat` in it, which has said that it is ready. Shells have their own mind
    /// about signals: dash forgets a SIGINT that comes while it starts a program, bash ignores
    /// SIGQUIT.
    pub(crate) fn start_cat() -> Self {
        let mut tty = Self::start(&["exec", "--", "cat"]);
        tty.keys("ready\r");
        tty.until("ready\r\nready\r\n");
        tty
    }

    /// Any program.
    pub(crate) fn start_other(words: &[&str]) -> Self {
        let pty = openpty(Some(&SIZE), None).expect("a terminal");
        // Nobody else shall hold it, or it never hangs up.
        let close_on_exec = nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::FD_CLOEXEC);
        nix::fcntl::fcntl(&pty.master, close_on_exec).expect("close-on-exec");
        let before = tcgetattr(&pty.slave).expect("modes");
        let end = || Stdio::from(pty.slave.try_clone().expect("a copy"));
        let mut command = Command::new("setsid");
        command.arg("--ctty").args(words).stdin(end()).stdout(end()).stderr(end());
        command.env("TERM", "xterm-test").env("PS1", "> ");
        clean(&mut command);
        let child = command.spawn().expect("started");
        let master = File::from(pty.master);
        Self { child, master, slave: pty.slave, seen: String::new(), before }
    }

    /// Reads what comes first, within `time`. Whether something came.
    fn read(&mut self, time: Duration) -> bool {
        let mut fds = [PollFd::new(self.master.as_fd(), PollFlags::POLLIN)];
        let time = PollTimeout::try_from(time).expect("short");
        let came = poll(&mut fds, time) == Ok(1);
        if came {
            let mut buffer = [0; 65536];
            let length = self.master.read(&mut buffer).unwrap_or(0);
            self.seen.push_str(&String::from_utf8_lossy(&buffer[..length]));
        }
        came
    }

    /// Reads until `text` has appeared, and forgets what came up to it, which is returned.
    pub(crate) fn until(&mut self, text: &str) -> String {
        let end = Instant::now() + soon();
        loop {
            if let Some(at) = self.seen.find(text) {
                return self.seen.drain(..at + text.len()).collect();
            }
            assert!(Instant::now() < end, "{text:?} did not appear, but {:?}", self.seen);
            self.read(Duration::from_millis(50));
        }
    }

    /// Closes the terminal, as a window that is closed.
    pub(crate) fn hang_up(&mut self) {
        self.master = File::open("/dev/null").expect("/dev/null");
    }

    pub(crate) fn keys(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).expect("typed");
    }

    pub(crate) fn resize(&self, size: Winsize) {
        let (rows, columns) = (size.ws_row.to_string(), size.ws_col.to_string());
        let stty = Command::new("stty")
            .args(["rows", &rows, "columns", &columns])
            .stdin(Stdio::from(self.slave.try_clone().expect("a copy")))
            .status()
            .expect("stty");
        assert!(stty.success());
    }

    /// Whether the terminal's modes are what they were at the start.
    pub(crate) fn is_restored(&self) -> bool {
        tcgetattr(&self.slave).expect("modes") == self.before
    }

    pub(crate) fn status(&mut self) -> ExitStatus {
        let end = Instant::now() + soon();
        loop {
            self.read(Duration::from_millis(20));
            if let Some(status) = self.child.try_wait().expect("waited for") {
                while self.read(Duration::from_millis(20)) {}
                return status;
            }
            assert!(Instant::now() < end, "it does not end: {:?}", self.seen);
        }
    }

    /// Its exit code, if nobody reads the terminal, which is as it was.
    pub(crate) fn unread_code(&mut self) -> i32 {
        eventually("it ends", || self.child.try_wait().expect("waited for").is_some());
        assert!(self.is_restored(), "the terminal is not as it was");
        self.child.wait().expect("ended").code().expect("an exit code")
    }

    /// Lets it end, and reads a little now and then.
    pub(crate) fn slowly_read_code(&mut self) -> i32 {
        let mut buffer = [0; 2048];
        eventually("it ends", || {
            let mut fds = [PollFd::new(self.master.as_fd(), PollFlags::POLLIN)];
            if poll(&mut fds, PollTimeout::ZERO) == Ok(1) {
                let length = self.master.read(&mut buffer).unwrap_or(0);
                self.seen.push_str(&String::from_utf8_lossy(&buffer[..length]));
            }
            self.child.try_wait().expect("waited for").is_some()
        });
        self.code()
    }

    /// Its exit code, the terminal as it was.
    pub(crate) fn code(&mut self) -> i32 {
        let code = self.status().code().expect("an exit code");
        assert!(self.is_restored(), "the terminal is not as it was");
        code
    }
}

impl Drop for Tty {
    fn drop(&mut self) {
        // Only after a failed assertion does it still run.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
