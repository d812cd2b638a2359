//! Asks a program of this host a question: shims, `ldd`, `nix-store`.
//!
//! Starts no thread: the command line resolves environments in the process that later clones.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

/// More than any closure's list of paths.
const MAX_ANSWER: usize = 4 << 20;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// It could not be started or listened to.
    #[error("`{command}` could not be run: {error}")]
    Start {
        /// The command line.
        command: String,
        /// Why.
        error: io::Error,
    },
    /// It did not end well.
    #[error("`{command}` failed with {status}{}", said(stderr))]
    Failed {
        /// The command line.
        command: String,
        /// How it ended.
        status: ExitStatus,
        /// What it wrote to its standard error.
        stderr: String,
    },
    /// It ran too long, and was killed with all its children.
    #[error("`{command}` took longer than {} s", limit.as_secs())]
    Slow {
        /// The command line.
        command: String,
        /// The limit.
        limit: Duration,
    },
    /// It wrote too much, and was killed.
    #[error("`{command}` wrote more than {MAX_ANSWER} bytes")]
    Long {
        /// The command line.
        command: String,
    },
}

fn said(stderr: &str) -> String {
    match stderr.lines().map(str::trim).rfind(|line| !line.is_empty()) {
        Some(line) => format!(": {line}"),
        None => String::new(),
    }
}

/// A question.
pub(super) struct Question<'a> {
    /// The program, absolute.
    pub(super) program: &'a Path,
    /// Its arguments.
    pub(super) arguments: Vec<&'a OsStr>,
    /// The variables that it sees. Nothing else is inherited: the answer shall not depend on, say,
    /// `PYTHONPATH` or `LD_PRELOAD`.
    pub(super) variables: Vec<(&'a str, OsString)>,
    /// When it is killed.
    pub(super) limit: Duration,
}

impl Question<'_> {
    /// Runs the program in `/` with `/dev/null` as its input and returns what it wrote to its
    /// standard output.
    ///
    /// # Errors
    /// All of [`AskError`]; also a status other than 0.
    pub(super) fn ask(&self) -> Result<Vec<u8>, AskError> {
        let start = |error| AskError::Start { command: self.command(), error };
        let mut child = Command::new(self.program)
            .args(&self.arguments)
            .env_clear()
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // A group of its own, so that a shim's children are killed with it.
            .process_group(0)
            .spawn()
            .map_err(start)?;
        let heard = self.listen(child_id(&child), &mut child);
        let status = end(&mut child).map_err(start)?;
        let (stdout, stderr) = heard?;
        if status.success() {
            return Ok(stdout);
        }
        let stderr = String::from_utf8_lossy(&stderr).into_owned();
        Err(AskError::Failed { command: self.command(), status, stderr })
    }

    /// What it wrote to its two streams until it ended.
    fn listen(&self, id: Pid, child: &mut Child) -> Result<(Vec<u8>, Vec<u8>), AskError> {
        let start = |error| AskError::Start { command: self.command(), error };
        let mut stdout = Pipe::new(child.stdout.take()).map_err(start)?;
        let mut stderr = Pipe::new(child.stderr.take()).map_err(start)?;
        let deadline = Instant::now() + self.limit;
        loop {
            // First whether it ended, then the pipes: so nothing that it wrote is missed, and a
            // grandchild that holds them open delays nothing.
            let ended = has_ended(id).map_err(start)?;
            stdout.drain().map_err(start)?;
            stderr.drain().map_err(start)?;
            if stdout.bytes.len().max(stderr.bytes.len()) > MAX_ANSWER {
                return Err(AskError::Long { command: self.command() });
            }
            if ended {
                return Ok((stdout.bytes, stderr.bytes));
            }
            if Instant::now() >= deadline {
                return Err(AskError::Slow { command: self.command(), limit: self.limit });
            }
            wait_for(&[&stdout, &stderr]).map_err(start)?;
        }
    }

    fn command(&self) -> String {
        let words = self.arguments.iter().map(|argument| argument.to_string_lossy());
        let program = self.program.to_string_lossy();
        let shown: Vec<_> = std::iter::once(program).chain(words).collect();
        shown.join(" ")
    }
}

/// Waits until a pipe has something to say, at most 20 ms.
fn wait_for(pipes: &[&Pipe]) -> io::Result<()> {
    let open = pipes.iter().filter_map(|pipe| pipe.as_fd());
    let mut open: Vec<_> = open.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
    if open.is_empty() {
        // It closed both and is about to end.
        std::thread::sleep(Duration::from_millis(1));
        return Ok(());
    }
    match poll(&mut open, PollTimeout::from(20_u8)) {
        Ok(_) | Err(nix::Error::EINTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

fn child_id(child: &Child) -> Pid {
    // A pid is positive and fits: the kernel's own type is i32.
    Pid::from_raw(i32::try_from(child.id()).unwrap_or(i32::MAX))
}

/// Whether it has ended. It stays a zombie, so its number still names its group.
fn has_ended(id: Pid) -> io::Result<bool> {
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    Ok(waitid(Id::Pid(id), flags)? != WaitStatus::StillAlive)
}

/// Kills whatever is left of its group and reaps it.
fn end(child: &mut Child) -> io::Result<ExitStatus> {
    // Fails if there is nobody but the zombie: no matter.
    let _ = killpg(child_id(child), Signal::SIGKILL);
    child.wait()
}

/// One end of a pipe, with what came out of it.
struct Pipe {
    end: Option<Box<dyn ReadFd>>,
    bytes: Vec<u8>,
}

trait ReadFd: Read + AsFd {}
impl<T: Read + AsFd> ReadFd for T {}

impl Pipe {
    fn new(end: Option<impl ReadFd + 'static>) -> io::Result<Self> {
        if let Some(end) = &end {
            fcntl(end, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        }
        Ok(Self { end: end.map(|end| Box::new(end) as Box<dyn ReadFd>), bytes: Vec::new() })
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.end.as_ref().map(|end| end.as_fd())
    }

    /// Takes what is there, up to a little over the limit.
    fn drain(&mut self) -> io::Result<()> {
        let mut chunk = [0; 8192];
        while let Some(end) = &mut self.end
            && self.bytes.len() <= MAX_ANSWER
        {
            match end.read(&mut chunk) {
                Ok(0) => self.end = None,
                Ok(count) => self.bytes.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str, limit: Duration) -> Result<Vec<u8>, String> {
        let program = Path::new("/bin/sh");
        let arguments = vec![OsStr::new("-c"), OsStr::new(script)];
        let variables = vec![("PATH", OsString::from("/usr/bin:/bin"))];
        Question { program, arguments, variables, limit }.ask().map_err(|error| error.to_string())
    }

    const SHORT: Duration = Duration::from_secs(1);

    #[test]
    fn an_answer_comes_back_whole_and_nothing_is_inherited() {
        let long = sh("head -c 300000 /dev/zero; head -c 300000 /dev/zero >&2", SHORT * 10);
        assert_eq!(long.map(|bytes| bytes.len()), Ok(300_000));
        assert_eq!(sh("pwd; echo ${HOME-none}; cat", SHORT * 10), Ok(b"/\nnone\n".to_vec()));
    }

    #[test]
    fn a_failure_is_told_with_its_last_words() {
        assert_eq!(
            sh("echo first >&2; echo last >&2; exit 3", SHORT * 10),
            Err("`/bin/sh -c echo first >&2; echo last >&2; exit 3` failed with exit status: 3: \
                 last"
                .to_owned())
        );
    }

    #[test]
    fn what_hangs_or_floods_is_killed_and_a_grandchild_delays_nothing() {
        let start = Instant::now();
        let slow = "`/bin/sh -c sleep 100; true` took longer than 1 s";
        assert_eq!(sh("sleep 100; true", SHORT), Err(slow.to_owned()));
        let flood = "`/bin/sh -c yes` wrote more than 4194304 bytes";
        assert_eq!(sh("yes", SHORT * 10), Err(flood.to_owned()));
        assert_eq!(sh("sleep 5 & echo done", SHORT * 10), Ok(b"done\n".to_vec()));
        assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
    }
}
