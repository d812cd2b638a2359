//! The floor: the least that a sandbox in namespaces of its own can cost. A process that already sits
//! in a finished root clones, maps one id, mounts a fresh procfs and a tmpfs, forks and executes; its
//! pid 1 waits. No filter, no Landlock, no limits, no masks. All share one network, or each has one of its
//! own, which is most of what a sandbox costs the kernel.

use std::ffi::CString;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use nix::fcntl::{OFlag, open, openat};
use nix::sched::{CloneFlags, unshare};
use nix::sys::stat::Mode;
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, getgid, getuid, mkdir};
use nix_sandbox::kernel::{self, Attributes, Cloned, Namespaces};

use crate::workplace::Workplace;

/// How this program is started to be the floor; the directory of the program and the kind of network
/// follow.
pub(crate) const ARGUMENT: &str = "--floor";

/// Whose network a sandbox has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Net {
    Shared,
    Own,
}

/// Starts the process and asks it for one sandbox at each call.
pub(crate) fn run(workplace: &Workplace, net: Net) -> impl FnMut() + Send + use<> {
    let mut process = Command::new("/proc/self/exe")
        .arg(ARGUMENT)
        .arg(workplace.bin())
        .arg(format!("{net:?}"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the floor");
    let ask = process.stdin.take();
    let answer = process.stdout.take().expect("its output");
    let mut floor = Floor { process, ask, answer };
    move || floor.launch()
}

struct Floor {
    process: Child,
    ask: Option<ChildStdin>,
    answer: ChildStdout,
}

impl Floor {
    fn launch(&mut self) {
        self.ask.as_mut().expect("its input").write_all(b"?").expect("asked");
        let mut one = [0];
        self.answer.read_exact(&mut one).expect("answered");
        assert_eq!(one, [0], "the floor's sandbox failed");
    }
}

impl Drop for Floor {
    fn drop(&mut self) {
        // It ends with its input.
        drop(self.ask.take());
        let _ = self.process.wait();
    }
}

/// What that process does.
pub(crate) fn main(arguments: &[String]) {
    let ids = (getuid().as_raw(), getgid().as_raw());
    let proc = prepare(Path::new(&arguments[0]), ids);
    let own = arguments[1] == format!("{:?}", Net::Own);
    let namespaces = if own { Namespaces::ALL } else { Namespaces::BUT_NETWORK };
    let (mut asked, mut answer) = (std::io::stdin(), File::from(dup(&std::io::stdout())));
    while asked.read_exact(&mut [0]).is_ok() {
        let code = match kernel::clone(namespaces, None).expect("clone") {
            Cloned::Child => init(&proc, ids),
            Cloned::Parent { pid, .. } => match waitpid(pid, None) {
                Ok(nix::sys::wait::WaitStatus::Exited(_, code)) => code,
                other => panic!("{other:?}"),
            },
        };
        answer.write_all(&[u8::try_from(code).unwrap_or(1)]).expect("answered");
    }
}

fn dup(fd: &impl AsFd) -> OwnedFd {
    fd.as_fd().try_clone_to_owned().expect("a descriptor")
}

/// The finished root; returns the host's `/proc`.
fn prepare(bin: &Path, (uid, gid): (u32, u32)) -> OwnedFd {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let proc = open("/proc", flags, Mode::empty()).expect("/proc");
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET)
        .expect("namespaces");
    map(&proc, uid, gid);
    kernel::set_private().expect("private mounts");
    let shown = dup(&open(bin, flags, Mode::empty()).expect("the program's directory"));
    let shown = kernel::clone_tree(shown.as_fd(), Path::new(""), true).expect("a bind");
    // Of this mount namespace; the other descriptor is of the host's.
    let place = open("/proc", flags, Mode::empty()).expect("/proc");
    // A fresh procfs is allowed only beside a whole one.
    let whole = kernel::clone_tree(place.as_fd(), Path::new(""), false).expect("the host's procfs");
    let root = kernel::new_filesystem("tmpfs", &[], Attributes::NOSUID).expect("a root");
    kernel::move_onto(root.as_fd(), place.as_fd(), Path::new("")).expect("attached");
    nix::unistd::fchdir(&root).expect("the root");
    for name in ["project", "proc", "tmp"] {
        mkdir(name, Mode::from_bits_truncate(0o755)).expect("a directory");
    }
    kernel::move_onto(shown.as_fd(), root.as_fd(), Path::new("project")).expect("shown");
    kernel::move_onto(whole.as_fd(), root.as_fd(), Path::new("proc")).expect("a procfs");
    kernel::pivot_into(root.as_fd()).expect("the new root");
    proc
}

fn map(proc: &OwnedFd, uid: u32, gid: u32) {
    for (name, content) in [
        ("self/setgroups", "deny".to_owned()),
        ("self/uid_map", format!("{uid} {uid} 1")),
        ("self/gid_map", format!("{gid} {gid} 1")),
    ] {
        let flags = OFlag::O_WRONLY | OFlag::O_CLOEXEC;
        let file = openat(proc, name, flags, Mode::empty()).expect("an id map");
        File::from(file).write_all(content.as_bytes()).expect("mapped");
    }
}

fn init(proc: &OwnedFd, (uid, gid): (u32, u32)) -> ! {
    map(proc, uid, gid);
    for (kind, place) in [("proc", "/proc"), ("tmpfs", "/tmp")] {
        let tree = kernel::new_filesystem(kind, &[], Attributes::NOSUID).expect("a file system");
        let flags = OFlag::O_PATH | OFlag::O_CLOEXEC;
        let at = open(place, flags, Mode::empty()).expect("its place");
        kernel::move_onto(tree.as_fd(), at.as_fd(), Path::new("")).expect("mounted");
    }
    match kernel::fork().expect("fork") {
        ForkResult::Child => {
            let program = CString::new(Path::new("/project/true").as_os_str().as_bytes());
            let program = program.expect("a path");
            let none: [CString; 0] = [];
            let _ = nix::unistd::execve(&program, std::slice::from_ref(&program), &none);
            kernel::exit_now(127)
        }
        ForkResult::Parent { child } => match waitpid(child, None) {
            Ok(nix::sys::wait::WaitStatus::Exited(_, code)) => kernel::exit_now(code),
            _ => kernel::exit_now(1),
        },
    }
}
