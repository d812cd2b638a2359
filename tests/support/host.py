"""What a sandbox must leave as it was: the host, and what a server holds. For soak, faults and fuzz/payloads."""

import fcntl
import hashlib
import os
import stat
import struct
import termios
import time

# Knobs of the whole machine that a payload would like to turn.
KNOBS = """kernel/core_pattern kernel/modprobe kernel/hostname kernel/domainname kernel/randomize_va_space
    kernel/sysrq kernel/panic vm/overcommit_memory vm/drop_caches fs/suid_dumpable fs/protected_symlinks
    fs/aio-nr user/max_user_namespaces net/ipv4/ip_forward""".split()

# Where processes leave files.
TEMPORARY = ["/tmp", "/var/tmp", "/dev/shm", "/run"]


def somebody():
    """A uid that nobody else is: whom the sandboxes that root starts run as. An ordinary user's run as himself."""
    return 70_000 + os.getpid() % 100_000 if os.geteuid() == 0 else os.geteuid()


def give(path, owner):
    """Makes `path` the project of a user, whom the sandboxes will run as."""
    os.chmod(path, 0o755)
    if os.geteuid() == 0:
        os.chown(path, owner, owner)


def read(path):
    """A file's text; its errno's name, if it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError as error:
        return f"errno {error.errno}"


def machine(owner, server=None):
    """What of the machine is to stay as it is; `owner` is the uid of the sandboxes, `server` one that runs. Name → value."""
    seen = {f"sysctl {knob}": read(f"/proc/sys/{knob}").strip() for knob in KNOBS}
    seen["mounts"] = sorted(line.split(" ", 3)[3] for line in read("/proc/self/mountinfo").splitlines())
    seen["modules"] = sorted(line.split(" ")[0] for line in read("/proc/modules").splitlines())
    for kind in ["msg", "sem", "shm"]:
        seen[f"sysvipc {kind}"] = [line for line in read(f"/proc/sysvipc/{kind}").splitlines() if str(owner) in line.split()]
    seen["files"] = sorted(files_of(owner))
    if owner != os.geteuid():
        known = {*children(server), *ahead(server)} if server else set()
        seen["processes"] = sorted(set(processes_of(owner)) - known)
        seen["sockets"] = sum(line.split()[7] == str(owner) for line in inet_sockets())
    return seen


def keys(owner):
    """Keys of `owner`; the kernel collects dead ones when it finds the time."""
    lines = [line.split() for line in read("/proc/key-users").splitlines()]
    return next((int(line[3].split("/")[0]) for line in lines if line and line[0] == f"{owner}:"), 0)


def inet_sockets():
    for family in ["tcp", "tcp6", "udp", "udp6"]:
        yield from read(f"/proc/net/{family}").splitlines()[1:]


def files_of(owner):
    """What of `owner` lies in the directories for temporary files, at their top; of oneself, what bears our name."""
    own = owner == os.geteuid()
    for place in TEMPORARY:
        for entry in os.scandir(place) if os.path.isdir(place) else []:
            try:
                ours = not own or "sandbox" in entry.name
                if ours and entry.stat(follow_symlinks=False).st_uid == owner:
                    yield entry.path
            except OSError:
                pass  # it has gone


def processes_of(owner):
    """Processes of a user that nobody else is."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.stat(f"/proc/{pid}").st_uid == owner or ruid(pid) == owner:
                yield int(pid)
        except (OSError, ValueError):
            pass  # it has gone


def ruid(pid):
    with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("Uid:"))


def children(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            return [int(child) for child in file.read().split()]
    except OSError:
        return []  # it has gone


def below(pid):
    """All processes below `pid`."""
    found = []
    for child in children(pid):
        found += [child, *below(child)]
    return found


def standing(server):
    """The sandboxes that stand ready below a server: their pid 1s, whose arguments are wiped, and whose payload waits to
    be told what to run or, an interpreter, for its code or, an agent, for its session."""
    ones = [pid for launcher in children(server) for pid in children(launcher)]
    waits = lambda child, pid: waits_for_order(child, pid) or waits_for_code(child) or waits_for_session(child)
    ready = lambda pid: all(waits(child, pid) for child in children(pid))
    return [pid for pid in ones if not read(f"/proc/{pid}/cmdline").strip("\0") and ready(pid)]


def waits_for_order(payload, one):
    """Whether a payload has not been told what to run: it is in the memory of its pid 1 still."""
    return read(f"/proc/{payload}/statm") == read(f"/proc/{one}/statm")


def waits_for_code(interpreter):
    """Whether the code of a sandbox's interpreter has not come: a FIFO has its name."""
    files = [f"/proc/{interpreter}/root/code/main.{kind}" for kind in ["py", "js"]]
    return any(os.path.exists(file) and stat.S_ISFIFO(os.stat(file).st_mode) for file in files)


def waits_for_session(agent):
    """Whether nobody has taken notice of an agent yet: that it is ready is in a pipe still."""
    if not os.path.exists(f"/proc/{agent}/root/agent"):
        return False
    try:
        pipes = [name for name in os.listdir(f"/proc/{agent}/fd") if int(name) > 2]
    except OSError:
        return False  # it has gone
    return any(unread(f"/proc/{agent}/fd/{name}") == len("ready 1\n") for name in pipes)


def unread(pipe):
    """How many bytes are in a pipe; `None` where it is none, or is gone."""
    try:
        file = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        if not stat.S_ISFIFO(os.fstat(file).st_mode):
            return None
        return struct.unpack("i", fcntl.ioctl(file, termios.FIONREAD, bytes(4)))[0]
    finally:
        os.close(file)


def ahead(server):
    """All processes of the sandboxes that stand ready."""
    return [pid for one in standing(server) for pid in [one, *below(one)]]


def running(server):
    """What is below a server besides its launcher and what stands ready."""
    return sorted(set(below(server)) - set(children(server)) - set(ahead(server)))


def cgroups(pid):
    """How many directories lie in the cgroup v2 subtree of `pid` or beside it."""
    line = next((l for l in read(f"/proc/{pid}/cgroup").splitlines() if l.startswith("0::")), "0::/")
    for root in ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"]:
        if os.path.exists(f"{root}/cgroup.controllers"):
            return sum(len(dirs) for _, dirs, _ in os.walk(root + os.path.dirname(line[3:].rstrip("/") or "/")))
    return 0


def held(pid):
    """What one process holds: descriptors, threads, mounts that it sees, private memory in KiB."""
    status = dict(line.split(":", 1) for line in read(f"/proc/{pid}/status").splitlines() if ":" in line)
    number = lambda name: int(status.get(name, "0").split()[0])
    links = list(descriptors(pid))
    kept = sum(link.endswith((".stdout", ".stderr")) for link in links)
    return {
        "descriptors": len(links) - kept,
        "kept outputs": kept,
        "threads": number("Threads"),
        "mounts": len(read(f"/proc/{pid}/mountinfo").splitlines()),
        "memory": number("RssAnon"),
    }


def descriptors(pid):
    """Where each descriptor of a process leads; a launcher hides that from its own user."""
    try:
        numbers = os.listdir(f"/proc/{pid}/fd")
    except PermissionError:
        return
    for number in numbers:
        try:
            yield os.readlink(f"/proc/{pid}/fd/{number}")
        except OSError:
            pass  # it is closed


def tree(root):
    """A hash of a whole file tree: names, kinds, modes, owners, times, contents."""
    sum = hashlib.sha256()
    for place, directories, files in os.walk(root):
        directories.sort()
        for name in sorted(directories + files):
            path = os.path.join(place, name)
            it = os.lstat(path)
            sum.update(f"{path}\0{it.st_mode}\0{it.st_uid}\0{it.st_gid}\0{it.st_size}\0{it.st_mtime_ns}\0".encode(errors="surrogateescape"))
            if stat.S_ISREG(it.st_mode):
                with open(path, "rb") as file:
                    sum.update(file.read())
            elif stat.S_ISLNK(it.st_mode):
                sum.update(os.readlink(path).encode(errors="surrogateescape"))
    return sum.hexdigest()


def settled(look, wanted, seconds=10):
    """What `look` sees once it is as `wanted`, or at last: the kernel tears down in its own time."""
    deadline = time.monotonic() + seconds
    while (seen := look()) != wanted and time.monotonic() < deadline:
        time.sleep(0.05)
    return seen


def steady(look, seconds=10, quiet=0.5):
    """What `look` sees once it has seen nothing else for a while, or at last."""
    began = since = time.monotonic()
    seen = look()
    while (now := time.monotonic()) - since < quiet and now - began < seconds:
        before, seen = seen, look()
        since = since if seen == before else now
    return seen


def changed(before, after):
    """One line for each thing that is another: its name, what it was and what it is."""
    return [f"{name}: {before.get(name)} -> {after[name]}" for name in after if after[name] != before.get(name)]
