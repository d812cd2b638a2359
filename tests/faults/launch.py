"""Every system call of one launch made to fail, one at a time, with what it can answer.

strace(1) does it to the real program: `--inject=CALL:error=ERRNO:when=N` fails the N-th such call of each of
its processes: of launcher, pid 1 and payload where a command line is tried, of the server's threads too where
a server is.
"""

import collections
import json
import os
import re
import subprocess
import tempfile

import host
from client import Client, Gone, text_of

# What each call can answer (its man page). What is not here: EPERM, EIO and ENOMEM.
ERRNOS = {
    "clone3": "EPERM ENOSPC EAGAIN ENOMEM ENOSYS EINVAL EUSERS", "clone": "EAGAIN ENOMEM EPERM",
    "execve": "ENOENT EACCES ENOEXEC E2BIG ETXTBSY", "openat": "EMFILE ENFILE EACCES ENOENT ENOMEM",
    "read": "EIO EINTR", "write": "ENOSPC EIO EPIPE EINTR", "open_tree": "ENOSYS EPERM ENOENT EMFILE ENOMEM",
    "move_mount": "ENOSYS EPERM EINVAL ENOMEM", "mount_setattr": "ENOSYS EPERM EINVAL ENOMEM",
    "fsopen": "ENOSYS EPERM ENODEV EMFILE", "fsconfig": "EPERM EINVAL EBUSY ENOMEM", "fsmount": "EPERM EMFILE ENOMEM",
    "mkdirat": "ENOSPC EACCES EROFS EEXIST", "symlinkat": "ENOSPC EACCES EEXIST", "newfstatat": "ENOENT EACCES ENOMEM",
    "statx": "ENOENT EACCES ENOMEM", "landlock_create_ruleset": "ENOSYS EOPNOTSUPP EMFILE",
    "landlock_add_rule": "ENOMEM EPERM", "landlock_restrict_self": "E2BIG ENOMEM EPERM", "seccomp": "EINVAL ENOSYS ENOMEM EACCES",
    "prctl": "EINVAL EPERM", "prlimit64": "EPERM EINVAL", "setresuid": "EAGAIN EPERM", "setresgid": "EPERM", "setgroups": "EPERM",
    "capset": "EPERM", "keyctl": "EDQUOT ENOSYS EPERM", "pipe2": "EMFILE ENFILE", "eventfd2": "EMFILE ENFILE", "dup3": "EMFILE EBUSY",
    "fcntl": "EMFILE EPERM", "socket": "EMFILE EAFNOSUPPORT ENOBUFS", "socketpair": "EMFILE ENFILE", "sendmsg": "EPIPE ENOBUFS EMSGSIZE ETOOMANYREFS",
    "recvmsg": "ECONNRESET ENOMEM EINTR", "poll": "EINTR ENOMEM", "ppoll": "EINTR ENOMEM", "epoll_wait": "EINTR", "mmap": "ENOMEM EPERM",
    "mprotect": "ENOMEM EACCES", "memfd_create": "EMFILE ENOMEM", "wait4": "ECHILD EINTR", "waitid": "ECHILD EINTR",
    "pidfd_open": "EMFILE ENOSYS EPERM", "pidfd_send_signal": "ESRCH EPERM ENOSYS", "close_range": "ENOSYS EMFILE", "ioctl": "ENOTTY EPERM ENODEV",
    "pivot_root": "EINVAL EPERM", "umount2": "EBUSY EINVAL", "sethostname": "EPERM", "signalfd4": "EMFILE ENOMEM",
    "personality": "EINVAL", "fchdir": "EACCES", "chdir": "EACCES ENOENT", "brk": "ENOMEM", "lseek": "ESPIPE", "getdents64": "ENOENT EIO",
    "kill": "ESRCH EPERM", "setsid": "EPERM", "accept4": "EMFILE", "epoll_create1": "EMFILE ENOMEM", "epoll_ctl": "ENOMEM ENOSPC",
}

# They cannot fail, or strace cannot make it look so: close(2) closes whatever it answers, and strace does not call it.
NEVER = set("close exit exit_group rt_sigreturn restart_syscall futex set_tid_address set_robust_list rseq arch_prctl getpid gettid getuid geteuid getgid getegid umask getrusage sched_yield sigaltstack rt_sigprocmask rt_sigaction sched_getaffinity".split())

# What the payload says of its walls; it fails if it cannot.
SAYS = ["grep", "-hE", "^(Uid|Gid|Groups|Cap|NoNew|Seccomp:|[0-9]+$|Max (core|processes|open|locked|pending))", "/proc/self/status", "/proc/sys/user/max_user_namespaces", "/proc/self/limits"]

# Seconds after which something hangs.
PATIENCE = 60


def calls(words, environment, **options):
    """What one launch calls: call → how often the process that does it most does."""
    with tempfile.NamedTemporaryFile("r", errors="replace") as log:
        subprocess.run(["strace", "-f", "-qq", "-o", log.name, *words], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, timeout=PATIENCE, check=True, **options)
        counts = collections.Counter(re.findall(r"^(\d+) +(\w+)\(", log.read(), re.MULTILINE))
    most = collections.Counter()
    for (_, call), number in counts.items():
        most[call] = max(most[call], number)
    return {call: number for call, number in most.items() if call not in NEVER}


def table(counts):
    """All faults: (call, which one, errno)."""
    for call, number in sorted(counts.items()):
        # The first execve is strace's own; the first brk asks where the heap is, and is always told.
        for which in range(2 if call in ("execve", "brk") else 1, number + 1):
            for errno in ERRNOS.get(call, "EPERM EIO ENOMEM").split():
                yield call, which, errno


def always(name, fault):
    """What was once borne in silence, or waited for ever, is tried with every change."""
    call, which, errno = fault
    once = {
        "launches": {("prctl", "EINVAL"), ("openat", "ENOENT"), ("getrandom", "ENOMEM")},
        "servers": {("kill", "ESRCH"), ("write", "EIO"), ("read", "EIO")},
    }
    return (call, errno) in once[name] and (name == "launches" or which <= 2)


def inject(fault, log="/dev/null"):
    call, which, errno = fault
    return ["strace", "-f", "-y", "-qq", "--seccomp-bpf", "-o", log, "-e", f"trace={call}", "-e", f"inject={call}:error={errno}:when={which}"]


def hit(log):
    """The calls that failed, each in one line, though others came between its beginning and its end."""
    begun = {}
    for line in log:
        pid, _, words = line.partition(" ")
        words = words.lstrip()
        if " resumed>" in words:
            words = begun.pop(pid, "") + words
        if words.endswith("<unfinished ...>\n"):
            begun[pid] = words
        elif words.endswith("(INJECTED)\n"):
            yield words


class Launches:
    """The command line under faults."""

    def __init__(self, program, project):
        self.words = [program, "exec", "--json", "--", *SAYS]
        self.environment = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), "PROJECT_DIR": project}
        self.right = self.said(subprocess.run(self.words, env=self.environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE))
        assert self.right, "it works without faults"

    @staticmethod
    def said(done):
        """What the payload said and what the result says of the walls; nothing, if there is no result."""
        if not done.stdout.endswith(b"}\n"):
            return None
        result = json.loads(done.stdout)
        walls = {wall["wall"]: wall["strength"] for wall in result["enforced"]}
        return result["stdout"]["text"], walls, result["ending"]

    def attempt(self, fault):
        """How it went: a kind, and what is wrong, if something is."""
        try:
            done = subprocess.run([*inject(fault), *self.words], env=self.environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            return "hang", f"it hangs for {PATIENCE} s"
        words = done.stderr.decode(errors="replace").strip()
        if ours(words):
            return "panic", words
        said = self.said(done)
        if said:
            text, walls, ending = said
            if (text, ending) == (self.right[0], self.right[2]):
                return ("borne" if walls == self.right[1] else "borne and told"), None
            if walls != self.right[1]:
                return "told as a weaker wall", None
            if ending == {"kind": "exited", "code": 0}:
                return "silent", f"the payload saw {text!r}, and nothing says why"
            return "the payload failed", None
        if done.returncode == 125 and not words and fault[:2] == ("write", 1):
            # Every process's first write fails: pid 1's, and the one that tells of it.
            return "told by the exit code", None
        # Warnings may come before.
        error = re.search(r"^nix-sandbox-mcp: .*", words, re.MULTILINE | re.DOTALL)
        if done.returncode == 125 and error and len(error[0]) > 30:
            return "told as an error", None
        if done.returncode == 127 and "error while loading shared libraries" in words or done.returncode in (127, -6, 134, -11, 139) and fault[0] in ("mmap", "brk", "mprotect", "read", "openat", "close", "pread64", "newfstatat"):
            return "died before main, or of no memory", None
        return "unclear", f"code {done.returncode}, stdout {done.stdout[-200:]!r}, stderr {words[-300:]!r}"

    def repeat(self, fault):
        return " ".join([*inject(fault), self.words[0], "exec --json -- true"])


class Servers:
    """A server, its launcher, and a run and two calls of a session, under faults."""

    def __init__(self, program, project):
        self.program, self.project = program, project

    def counts(self):
        with tempfile.NamedTemporaryFile("r", errors="replace") as log:
            wrapper = ["strace", "-f", "-qq", "-o", log.name]
            with Client(self.program, wrapper=wrapper, PROJECT_DIR=self.project) as client:
                assert self.talk(client) == [], "it works without faults"
                client.hang_up()
                client.process.wait(PATIENCE)
            counts = collections.Counter(re.findall(r"^(\d+) +(\w+)\(", log.read(), re.MULTILINE))
        most = collections.Counter()
        for (_, call), number in counts.items():
            most[call] = max(most[call], number)
        return {call: number for call, number in most.items() if call not in NEVER}

    @staticmethod
    def talk(client):
        """Two runs, and a session of two calls; what is not as without faults."""
        odd = []
        for code, right, session in [("echo $((6 * 7))", "42\n", {}), ("n=5", "", {"session": "s"}), ("echo $n", "5\n", {"session": "s"}), ("echo 43", "43\n", {})]:
            text = text_of(client.start(code, timeout=5, **session)[1].result(PATIENCE))
            if not text.startswith(right + "[exit 0 · "):
                odd.append(text)
        return odd

    def attempt(self, fault):
        with tempfile.NamedTemporaryFile("r", errors="replace") as traced:
            kind, why = self.tried(fault, traced.name)
            # The runtime's threads wake each other so, and one that cannot ends: whoever waits for it waits for ever.
            if why and any("<anon_inode:[eventfd]>" in words for words in hit(traced)):
                return "no kernel fails so: an eventfd that is not full takes what is written", None
        return kind, why

    def tried(self, fault, traced):
        log = tempfile.TemporaryFile("w+", errors="replace")
        client = Client(self.program, log=log, wrapper=inject(fault, traced), version=None, PROJECT_DIR=self.project)
        try:
            info = {"name": "test", "version": "1"}
            client.request("initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo=info)[1].result(PATIENCE)
            odd = self.talk(client)
            # Whatever befell the first ones: the fault is over, or each call is told of it.
            odd += self.talk(client)
            client.hang_up()
            client.process.wait(PATIENCE)
            log.seek(0)
            words = log.read()
        except (Gone, BrokenPipeError):
            client.process.wait(PATIENCE)
            log.seek(0)
            words = log.read().strip()
            # 0: whom it serves is gone, as far as it can see.
            gone = client.process.returncode == 0 and ("fail to response message" in words or "standard input cannot be read" in words)
            # Every thread's n-th write fails: also the one that tells of it.
            with open(traced, errors="replace") as calls:
                failed = list(hit(calls))
            mute = fault[0] == "write" and any('"{\\"jsonrpc' in call for call in failed) and client.process.returncode == 0
            dumb = client.process.returncode == 125 and fault[:2] == ("write", 1)
            if client.process.returncode in (125, 127) and words or gone or dumb or mute:
                return "the server says why and ends", None
            if client.process.returncode in (101, 134) and "panicked at /" in words and not ours(words):
                return "a library says why and ends the server", None
            if fault[0] in ("mmap", "brk", "mprotect"):
                return "died of no memory", None
            return "unclear", f"the server ended with {client.process.returncode}: {words[-300:]!r}"
        except TimeoutError:
            return "hang", f"no answer in {PATIENCE} s"
        except subprocess.TimeoutExpired:
            return "hang", "the server does not end with its input"
        finally:
            for pid in host.below(client.process.pid):
                kill(pid)
            # strace, which writes down the last of what it saw once all that it traced has ended.
            try:
                client.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                kill(client.process.pid)
                client.process.wait()
            log.close()
        if ours(words):
            return "panic", words[-600:]
        unclear = [text for text in odd if not clear(text)]
        if unclear:
            return "unclear", unclear[0]
        return ("told in an answer" if odd else "borne"), None

    def repeat(self, fault):
        return " ".join([*inject(fault), self.program, "--stdio"])


def ours(words):
    """Whether a panic is told that is ours: not of the language's start, nor of a library that cannot say it otherwise."""
    places = words.split("panicked at")[1:]
    return any(place.startswith(" src/") and "OS can't spawn worker thread" not in place for place in places)


def clear(text):
    """Whether a model learns what happened: an error sentence, or how its own program ended."""
    # What hits the payload ends it as it likes; after a session's state was lost, the second call echoes nothing.
    if text.startswith("sandbox error (host): ") or re.search(r"\[(exit|killed|timed out|could not start|out of memory|ended)[^\n]*\]$", text):
        return True
    return text.startswith("sandbox error (internal): ") and re.search(r": E[A-Z0-9]+", text) is not None


def kill(pid):
    try:
        os.kill(pid, 9)
    except (ProcessLookupError, PermissionError):
        pass  # it has gone, or is not ours to kill and dies with its server
