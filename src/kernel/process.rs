//! Calls about processes: pidfds, descriptors, keyrings.

use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, Ordering};

use nix::errno::Errno;
use nix::unistd::{ForkResult, Pid};

use super::check;

/// A descriptor that names the process `pid` (pidfd_open(2), Linux 5.3). Close-on-exec.
///
/// # Errors
/// `ESRCH` where there is no such process.
pub fn pidfd_open(pid: Pid) -> nix::Result<OwnedFd> {
    // SAFETY: integers only.
    let fd = check(unsafe { libc::syscall(libc::SYS_pidfd_open, pid.as_raw(), 0) })?;
    let fd = RawFd::try_from(fd).map_err(|_| Errno::EBADF)?;
    // SAFETY: the kernel has just made this descriptor for us; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sends a signal to the process that `pidfd` names (pidfd_send_signal(2), Linux 5.1).
///
/// # Errors
/// `ESRCH` once it has been reaped, `EPERM`.
pub fn pidfd_signal(pidfd: BorrowedFd<'_>, signal: libc::c_int) -> nix::Result<()> {
    // SAFETY: a null siginfo is documented as "as kill(2) would fill it"; the rest are integers.
    check(unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            pidfd.as_raw_fd(),
            signal,
            std::ptr::null::<libc::siginfo_t>(),
            0,
        )
    })
    .map(drop)
}

/// Closes every descriptor from `first` up (close_range(2), Linux 5.9).
fn close_from(first: RawFd) -> nix::Result<()> {
    // SAFETY: integers only. The callers below answer for the owners.
    check(unsafe {
        libc::syscall(libc::SYS_close_range, first.cast_unsigned(), libc::c_uint::MAX, 0)
    })
    .map(drop)
}

/// Closes everything that this process inherited besides 0, 1 and 2. To be called first of all,
/// when no Rust value owns a descriptor yet.
///
/// # Errors
/// `ENOSYS` before Linux 5.9.
pub fn close_inherited() -> nix::Result<()> {
    close_from(3)
}

/// Where [`keep_only`] lifts descriptors first, clear of every target.
const LIFTED: RawFd = 32;

/// Whether the limit of open files surely lets [`keep_only`] place that many descriptors:
/// each stands at its old place and at a lifted one meanwhile.
#[must_use]
pub fn can_keep(count: usize) -> bool {
    let needed = LIFTED.cast_unsigned() as usize + 2 * count;
    let limit = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE);
    limit.is_ok_and(|(soft, _)| needed as u64 <= soft)
}

/// Gives `payload` the numbers 0, 1, 2, … in this order, `own` the next ones (close-on-exec), and
/// closes everything else. Returns the owners of the new numbers of `own`.
///
/// To be called by a process that ends with exec or `_exit`: whatever other value owned a
/// descriptor must not be used again, and is never dropped.
///
/// # Errors
/// `EMFILE`, `ENOSYS` before Linux 5.9.
pub fn keep_only(payload: &[BorrowedFd<'_>], own: &[BorrowedFd<'_>]) -> nix::Result<Vec<OwnedFd>> {
    let all: Vec<BorrowedFd<'_>> = payload.iter().chain(own).copied().collect();
    place(&all, payload.len())?;
    let number = |count: usize| RawFd::try_from(count).map_err(|_| Errno::EMFILE);
    let (first, end) = (number(payload.len())?, number(all.len())?);
    // SAFETY: these numbers were just placed, and every other open descriptor is one of the
    // payload's, which no value owns: nobody else owns these.
    Ok((first..end).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }).collect())
}

/// Gives `fds` the numbers from 0 up and closes all others; the first `inherited` pass an exec.
fn place(fds: &[BorrowedFd<'_>], inherited: usize) -> nix::Result<()> {
    let mut lifted = Vec::with_capacity(fds.len());
    for fd in fds {
        let copy = nix::fcntl::fcntl(*fd, nix::fcntl::FcntlArg::F_DUPFD_CLOEXEC(LIFTED));
        // EINVAL: the limit on open files is below that number (F_DUPFD(2const)).
        lifted.push(
            copy.map_err(|errno| if errno == Errno::EINVAL { Errno::EMFILE } else { errno })?,
        );
    }
    let mut target: RawFd = 0;
    for (at, from) in lifted.into_iter().enumerate() {
        let flags = if at < inherited { 0 } else { libc::O_CLOEXEC };
        // SAFETY: integers only; `from` is at least LIFTED, so it differs from `target`, as dup3
        // demands. Values that owned the targets are not used again: see the callers' contract.
        check(libc::c_long::from(unsafe { libc::dup3(from, target, flags) }))?;
        target += 1;
    }
    close_from(target)
}

/// Sets a limit of another process, soft and hard, never above what it was given (prlimit(2)).
///
/// # Errors
/// `EPERM` for a process that is not ours, `ESRCH`.
pub fn limit_process(
    pid: Pid,
    resource: nix::sys::resource::Resource,
    soft: u64,
    hard: u64,
) -> nix::Result<()> {
    let call = |new: *const libc::rlimit, old: *mut libc::rlimit| {
        // SAFETY: `new` and `old` are null or point to a struct rlimit of a caller below that
        // outlives the call; the kernel reads the first and writes the second.
        check(libc::c_long::from(unsafe { libc::prlimit(pid.as_raw(), resource as _, new, old) }))
    };
    let mut most = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    call(std::ptr::null(), &raw mut most)?;
    let own = libc::rlimit { rlim_cur: soft.min(most.rlim_max), rlim_max: hard.min(most.rlim_max) };
    call(&raw const own, std::ptr::null_mut()).map(drop)
}

/// The user namespace that `namespace` belongs to (`NS_GET_USERNS`, ioctl_ns(2), Linux 4.9).
///
/// # Errors
/// `EPERM` for one outside of the caller's own user namespace and its descendants.
pub fn owner_of_namespace(namespace: BorrowedFd<'_>) -> nix::Result<OwnedFd> {
    const NS_GET_USERNS: libc::Ioctl = 0xb701;
    // SAFETY: NS_GET_USERNS takes no argument and returns a descriptor.
    let fd =
        check(libc::c_long::from(unsafe { libc::ioctl(namespace.as_raw_fd(), NS_GET_USERNS) }))?;
    let fd = RawFd::try_from(fd).map_err(|_| Errno::EBADF)?;
    // SAFETY: the kernel has just opened this descriptor, close-on-exec; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Plain fork(2) for a process with one thread.
///
/// # Errors
/// `EAGAIN` at a process limit, `ENOMEM`.
pub fn fork() -> nix::Result<ForkResult> {
    // SAFETY: the engine's launcher and pid 1 have one thread (they are cloned from a process that
    // never started a second one), so the child may run any code.
    unsafe { nix::unistd::fork() }
}

#[cfg(not(target_env = "gnu"))]
compile_error!(
    "this needs the GNU C library, linked statically if need be: musl's clone(3) refuses CLONE_CHILD_CLEARTID"
);

/// Stack of a child that shares its parent's memory, bytes: what its few steps use, many times over.
const CHILD_STACK: usize = 256 << 10;

/// What a child that shares its parent's memory is given.
struct Shared<F> {
    /// 1 once the child may begin.
    gate: AtomicI32,
    /// 0 once the child has left this memory; the kernel writes it (`CLONE_CHILD_CLEARTID`).
    present: AtomicI32,
    body: F,
}

/// Starts a child that runs `body` in this process's memory and with its descriptors, on a stack of
/// its own, and waits until it has executed a program or ended (clone(2), `CLONE_VM | CLONE_FILES`). No
/// page table is copied, which is most of what a fork costs. `meanwhile` runs here before `body` begins
/// there, and is not inherited.
///
/// `body` ends with exec or returns its exit code; what it changes in memory and what descriptors it
/// opens and closes stays so. As long as it waits for something this process sleeps (`CLONE_VFORK` would
/// make it count as load).
///
/// # Errors
/// `EAGAIN` at a process limit, `ENOMEM`.
pub fn spawn_sharing<F: FnMut() -> libc::c_int>(
    meanwhile: impl FnOnce(),
    body: F,
) -> nix::Result<Pid> {
    extern "C" fn enter<F: FnMut() -> libc::c_int>(shared: *mut libc::c_void) -> libc::c_int {
        let shared = shared.cast::<Shared<F>>();
        // SAFETY: `shared` is the pointer that is given to clone below, and lives until this process
        // has left the memory. Nobody else refers to `gate` but by shared references.
        wait_while(unsafe { &(*shared).gate }, 0);
        // SAFETY: as above; and nobody else refers to `body` at all.
        let body = unsafe { &mut (*shared).body };
        // The C library's clone(3) ends the child with this by _exit(2).
        body()
    }
    let mut shared = Shared { gate: AtomicI32::new(0), present: AtomicI32::new(1), body };
    let stack = Stack::new(CHILD_STACK)?;
    let (present, flags) = (shared.present.as_ptr(), libc::CLONE_VM | libc::CLONE_FILES);
    let flags = flags | libc::CLONE_CHILD_CLEARTID | libc::SIGCHLD;
    let argument = (&raw mut shared).cast();
    // SAFETY: stack and `shared` outlive the child's use of this memory, which is waited for below. The
    // caller has one thread. The two tasks share even its thread-local storage, so they take turns: the
    // child waits at the gate while `meanwhile` runs; afterwards this task is in futex(2), which
    // fails with nothing before the child has left (signals are blocked or fatal), and so writes no
    // errno beside it. The child has its own signal dispositions, mask and credentials (none of
    // those flags is given). The two null pointers belong to flags that are not given.
    let pid = unsafe {
        let none = std::ptr::null_mut::<libc::c_void>();
        libc::clone(enter::<F>, stack.top(), flags, argument, none, none, present)
    };
    if pid < 0 {
        return Err(Errno::last());
    }
    meanwhile();
    shared.gate.store(1, Ordering::Release);
    wake(&shared.gate);
    wait_while(&shared.present, 1);
    Ok(Pid::from_raw(pid))
}

/// Waits until `word` is no longer `value` (futex(2)). Not a private one: the kernel wakes who waits for
/// a task's end by the other kind (set_tid_address(2)).
fn wait_while(word: &AtomicI32, value: i32) {
    while word.load(Ordering::Acquire) == value {
        let none = std::ptr::null::<libc::timespec>();
        // SAFETY: `word` is aligned and lives; without a time the kernel waits for a wake or another value.
        unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, value, none) };
    }
}

fn wake(word: &AtomicI32) {
    // SAFETY: `word` is aligned and lives; the kernel does not write it.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, 1) };
}

/// Memory for a child's stack.
struct Stack {
    memory: *mut libc::c_void,
    size: usize,
}

impl Stack {
    fn new(size: usize) -> nix::Result<Self> {
        // SAFETY: a fresh anonymous mapping; the kernel chooses where.
        let memory = unsafe {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK;
            libc::mmap(std::ptr::null_mut(), size, protection, flags, -1, 0)
        };
        if memory == libc::MAP_FAILED {
            return Err(Errno::last());
        }
        let stack = Self { memory, size };
        // Its lowest page is a guard: who overruns the stack dies instead of writing elsewhere.
        // SAFETY: the page lies within the mapping above, and nothing is in it.
        check(libc::c_long::from(unsafe { libc::mprotect(memory, 4096, libc::PROT_NONE) }))?;
        Ok(stack)
    }

    /// Its upper end, from where it grows.
    fn top(&self) -> *mut libc::c_void {
        // SAFETY: `size` bytes were mapped: one past their end may be pointed to.
        unsafe { self.memory.byte_add(self.size) }
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's, and whoever was given its end has left this memory.
        unsafe { libc::munmap(self.memory, self.size) };
    }
}

const KEYCTL_JOIN_SESSION_KEYRING: libc::c_int = 1;

/// Leaves the inherited session keyring for a new, empty, anonymous one (keyctl(2)). Without this
/// a sandbox reads keys of whoever started the program: key rings are no namespace.
///
/// # Errors
/// `EDQUOT` when the user owns its 200 keys already, `ENOSYS` in a kernel without key rings.
pub fn join_new_session_keyring() -> nix::Result<()> {
    // SAFETY: a null name is documented as "make an anonymous keyring"; the rest are integers.
    check(unsafe {
        libc::syscall(
            libc::SYS_keyctl,
            KEYCTL_JOIN_SESSION_KEYRING,
            std::ptr::null::<libc::c_char>(),
        )
    })
    .map(drop)
}

/// Makes the terminal `tty` the controlling terminal of this session (`TIOCSCTTY`, tty_ioctl(4)).
///
/// # Errors
/// `EPERM` if the caller leads no session, has a terminal already, or another session owns it.
pub fn claim_terminal(tty: BorrowedFd<'_>) -> nix::Result<()> {
    // SAFETY: TIOCSCTTY takes an integer argument (0: do not steal).
    check(libc::c_long::from(unsafe { libc::ioctl(tty.as_raw_fd(), libc::TIOCSCTTY, 0) })).map(drop)
}

/// Undoes an inherited `PR_SET_THP_DISABLE` (prctl(2)).
///
/// # Errors
/// `EINVAL` before Linux 3.15.
pub fn set_thp_default() -> nix::Result<()> {
    // SAFETY: integers only; the unused arguments are 0 as prctl(2) demands.
    check(libc::c_long::from(unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 0, 0, 0, 0) }))
        .map(drop)
}

/// Gives up whatever this process has over others for processor and disk: real-time scheduling, a
/// negative nice value, an I/O class of its own. What it has less than others stays.
///
/// # Errors
/// None is expected: to give up is always allowed.
pub fn reset_priority() -> nix::Result<()> {
    const WHO_PROCESS: libc::c_int = 1;
    // SAFETY: sched_getscheduler takes an integer.
    let policy = check(libc::c_long::from(unsafe { libc::sched_getscheduler(0) }))?;
    let below = [libc::SCHED_OTHER, libc::SCHED_BATCH, libc::SCHED_IDLE];
    if !below.map(libc::c_long::from).contains(&policy) {
        // SAFETY: `sched_param` is plain integers; the pointer is to a live value of that type.
        check(libc::c_long::from(unsafe {
            let usual: libc::sched_param = std::mem::zeroed();
            libc::sched_setscheduler(0, libc::SCHED_OTHER, &raw const usual)
        }))?;
    }
    // As a raw call the value comes as 20 - nice, so that no good answer is negative.
    // SAFETY: integers only.
    let nice = check(unsafe { libc::syscall(libc::SYS_getpriority, libc::PRIO_PROCESS, 0) })?;
    if nice > 20 {
        // SAFETY: integers only.
        check(unsafe { libc::syscall(libc::SYS_setpriority, libc::PRIO_PROCESS, 0, 0) })?;
    }
    // SAFETY: integers only; class 0 is none: what the nice value gives.
    if check(unsafe { libc::syscall(libc::SYS_ioprio_get, WHO_PROCESS, 0) })? != 0 {
        // SAFETY: integers only.
        check(unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, 0, 0) })?;
    }
    Ok(())
}

/// Lets this process run on every processor that it may.
///
/// # Errors
/// `EINVAL` if a cpuset leaves none.
pub fn set_affinity_all() -> nix::Result<()> {
    // SAFETY: `cpu_set_t` is a bit array; filled with ones it names every processor, and the
    // kernel intersects it with those that exist. The pointer and size describe that array.
    check(libc::c_long::from(unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        std::ptr::write_bytes(&raw mut set, 0xff, 1);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set)
    }))
    .map(drop)
}

/// Empties the capability bounding set (capabilities(7)): every capability that this kernel has,
/// also those that are newer than this program.
///
/// # Errors
/// `EPERM` without `CAP_SETPCAP`.
pub fn drop_bounding_set() -> nix::Result<()> {
    let ask = |what: libc::c_int, capability: libc::c_ulong| {
        // SAFETY: integers only; the unused arguments are 0 as prctl(2) demands.
        check(libc::c_long::from(unsafe { libc::prctl(what, capability, 0, 0, 0) }))
    };
    for capability in 0..=63 as libc::c_ulong {
        match ask(libc::PR_CAPBSET_DROP, capability) {
            // The kernel has no capability of this number, nor any above it; or it says so.
            Err(Errno::EINVAL) => {
                return match ask(libc::PR_CAPBSET_READ, capability) {
                    Ok(1) => Err(Errno::EINVAL),
                    _ => Ok(()),
                };
            }
            other => other?,
        };
    }
    Ok(())
}

/// Gives every signal its default disposition, also the two that the C library keeps to itself: an
/// ignored one stays ignored through exec.
///
/// # Errors
/// Never in practice.
pub fn reset_dispositions() -> nix::Result<()> {
    /// The kernel's own struct (rt_sigaction(2)), not the C library's.
    #[repr(C)]
    struct Action {
        handler: usize,
        flags: libc::c_ulong,
        restorer: usize,
        mask: u64,
    }
    let default = Action { handler: libc::SIG_DFL, flags: 0, restorer: 0, mask: 0 };
    for signal in (1..=64).filter(|signal| ![libc::SIGKILL, libc::SIGSTOP].contains(signal)) {
        // SAFETY: `default` is a kernel sigaction with a mask of the size passed; SIG_DFL installs
        // no handler, so no code of ours can run in a signal context. No old action is asked for.
        check(unsafe {
            libc::syscall(
                libc::SYS_rt_sigaction,
                signal,
                &raw const default,
                std::ptr::null::<Action>(),
                size_of::<u64>(),
            )
        })?;
    }
    Ok(())
}

/// The execution domain that programs expect: plain Linux, addresses randomised (personality(2)).
///
/// # Errors
/// Never in practice.
pub fn reset_personality() -> nix::Result<()> {
    // SAFETY: an integer only.
    check(libc::c_long::from(unsafe { libc::personality(0) })).map(drop)
}

/// The Landlock version of this kernel (landlock(7)); `None` where there is none or it is off.
#[must_use]
pub fn landlock_abi() -> Option<u32> {
    const LANDLOCK_CREATE_RULESET_VERSION: libc::c_uint = 1;
    // SAFETY: with this flag the kernel demands a null pointer and size 0 and creates nothing.
    let version = check(unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::null::<libc::c_void>(),
            0_usize,
            LANDLOCK_CREATE_RULESET_VERSION,
        )
    });
    version.ok().and_then(|version| u32::try_from(version).ok())
}

/// Has the kernel reap this process's children by itself (sigaction(2), `SIG_IGN` for `SIGCHLD`).
///
/// # Errors
/// Never in practice.
pub fn ignore_children() -> nix::Result<()> {
    // SAFETY: SIG_IGN installs no handler, so no code of ours can run in a signal context.
    match unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) } {
        libc::SIG_ERR => Err(Errno::last()),
        _ => Ok(()),
    }
}

/// Whether this process ignores `signal`, as `nohup` and a shell's `&` have it (sigaction(2)).
///
/// # Errors
/// `EINVAL` for what is no signal.
pub fn is_ignored(signal: libc::c_int) -> nix::Result<bool> {
    // SAFETY: `sigaction` is a C struct of plain data for which all-zero is valid; with a null new
    // action the call only writes the old one to it.
    let action = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        check(libc::sigaction(signal, std::ptr::null(), &raw mut action).into())?;
        action
    };
    Ok(action.sa_sigaction == libc::SIG_IGN)
}

/// Ends this process at once: no destructors, no exit handlers of the program it was forked from.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: _exit(2) takes an integer and does not return.
    unsafe { libc::_exit(code) }
}

/// Where the arguments and the environment lie that a process was started with: its own, and those of
/// every process that is forked from it.
#[derive(Debug, Clone, Copy)]
pub struct Arguments {
    arguments: (usize, usize),
    environment: (usize, usize),
}

impl Arguments {
    /// Reads it out of a process's `/proc/self/stat`, whatever `/proc` that came from.
    ///
    /// # Errors
    /// `stat` cannot be understood, or hides the bounds, as from everybody but whom it may trust (`EIO`).
    pub fn read(stat: &[u8]) -> nix::Result<Self> {
        let stat = String::from_utf8_lossy(stat);
        // After the program's name, which may hold anything and ends with the last parenthesis, the
        // fields are numbered from 3; 48 to 51 are the bounds of arguments and environment (proc(5)).
        let (_, fields) = stat.rsplit_once(") ").ok_or(Errno::EIO)?;
        let bounds: Vec<usize> = fields
            .split(' ')
            .skip(45)
            .take(4)
            .filter_map(|field| field.trim().parse().ok())
            .collect();
        match bounds[..] {
            [first, first_end, second, second_end]
                if first != 0 && first <= first_end && second != 0 && second <= second_end =>
            {
                Ok(Self { arguments: (first, first_end), environment: (second, second_end) })
            }
            _ => Err(Errno::EIO),
        }
    }

    /// Overwrites both and names this process `name`. `/proc/1/cmdline` can be read by everyone in the
    /// sandbox; the arguments of a command line hold paths of the host, its environment holds secrets.
    ///
    /// To be called by pid 1, which never reads either again.
    ///
    /// # Errors
    /// Never in practice.
    pub fn forget(self, name: &CStr) -> nix::Result<()> {
        nix::sys::prctl::set_name(name)?;
        for (from, to) in [self.arguments, self.environment] {
            // SAFETY: the kernel said that these bytes hold the argument and environment strings of
            // this process or of the one that it was forked from: memory of the initial stack, mapped,
            // writable, and in this process a private copy since the fork. No Rust reference points to
            // it: std hands out copies only.
            unsafe {
                std::ptr::write_bytes(
                    std::ptr::with_exposed_provenance_mut::<u8>(from),
                    0,
                    to - from,
                );
            };
        }
        Ok(())
    }
}
