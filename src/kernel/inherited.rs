//! What a process inherits without being asked, made the same for every sandbox.

use nix::errno::Errno;

use super::check;

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
