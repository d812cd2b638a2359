"""What the Python payloads share: raw system calls, and every answer by its name.

A payload says what it observed, one `what: answer` on a line, and judges nothing. An answer is
`ok`, a value, or the name of an errno.
"""

import ctypes
import errno
import os
import signal

NR = {  # x86_64; from 424 on the numbers are those of every architecture
    "ioctl": 16, "shmget": 29, "getpid": 39, "socket": 41, "clone": 56, "semget": 64, "msgget": 68,
    "ptrace": 101, "setgroups": 116, "capset": 126, "uselib": 134, "personality": 135, "ustat": 136,
    "sysfs": 139, "sched_setscheduler": 144, "vhangup": 153, "modify_ldt": 154, "pivot_root": 155,
    "_sysctl": 156, "prctl": 157, "arch_prctl": 158, "adjtimex": 159, "chroot": 161, "acct": 163,
    "settimeofday": 164, "mount": 165, "umount2": 166, "swapon": 167, "swapoff": 168, "reboot": 169,
    "sethostname": 170, "setdomainname": 171, "iopl": 172, "ioperm": 173, "create_module": 174,
    "init_module": 175, "delete_module": 176, "quotactl": 179, "nfsservctl": 180, "tee": 276,
    "clock_settime": 227, "mq_open": 240, "kexec_load": 246, "add_key": 248, "request_key": 249,
    "keyctl": 250, "ioprio_set": 251, "unshare": 272, "splice": 275, "vmsplice": 278,
    "perf_event_open": 298, "name_to_handle_at": 303, "open_by_handle_at": 304,
    "clock_adjtime": 305, "setns": 308, "process_vm_readv": 310, "process_vm_writev": 311,
    "finit_module": 313, "sched_setattr": 314, "seccomp": 317, "memfd_create": 319,
    "kexec_file_load": 320, "bpf": 321, "execveat": 322, "userfaultfd": 323, "mlock2": 325,
    "pidfd_send_signal": 424, "io_uring_setup": 425, "io_uring_enter": 426,
    "io_uring_register": 427, "open_tree": 428, "move_mount": 429, "fsopen": 430, "fsconfig": 431,
    "fsmount": 432, "fspick": 433, "pidfd_open": 434, "clone3": 435, "openat2": 437,
    "pidfd_getfd": 438, "mount_setattr": 442, "quotactl_fd": 443, "memfd_secret": 447,
    "cachestat": 451, "statmount": 457, "listmount": 458, "open_tree_attr": 467,
}

errno.errorcode[errno.EOPNOTSUPP] = "EOPNOTSUPP"  # not its other name, ENOTSUP

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long


def syscall(call, *arguments):
    """The result of a system call, by name or number; `-errno` where it failed."""
    number = NR[call] if isinstance(call, str) else call
    words = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    ctypes.set_errno(0)
    result = libc.syscall(ctypes.c_long(number), *words)
    return -ctypes.get_errno() if result == -1 else result


def name(result):
    """`EPERM` for `-1` and so on; `ok` for everything that is no error."""
    return errno.errorcode.get(-result, str(result)) if result < 0 else "ok"


def show(what, answer):
    """One line of what was observed."""
    print(f"{what}: {answer}", flush=True)


def call(what, *arguments, label=None):
    """Makes a system call and shows how it was answered."""
    show(label or what, name(syscall(what, *arguments)))


def attempt(function, *arguments):
    """`ok`, or the name of the errno that `function` failed with."""
    try:
        function(*arguments)
        return "ok"
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error))


def reading(path, bytes=4096):
    """What can be read of a file: `empty`, `N bytes`, or the name of an errno."""
    try:
        with open(path, "rb") as file:
            count = len(file.read(bytes))
            return f"{count} bytes" if count else "empty"
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error))


def writing(path, content=b"0"):
    """How a write to an existing file is answered. It is opened without `O_CREAT`."""
    try:
        descriptor = os.open(path, os.O_WRONLY)
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error))
    try:
        return attempt(os.write, descriptor, content)
    finally:
        os.close(descriptor)


def in_child(function):
    """Runs `function` in a child of its own; how the child ended: `exit N` or a signal's name."""
    pid = os.fork()
    if pid == 0:
        function()
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        return signal.Signals(os.WTERMSIG(status)).name
    return f"exit {os.WEXITSTATUS(status)}"
