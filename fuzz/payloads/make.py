"""Malicious programs, each made of its seed alone."""

import os
import random

ESCAPES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests", "escapes")
ENVIRONMENTS = {".sh": "shell", ".py": "python", ".js": "node"}

PATHS = """/ /proc/1/mem /proc/self/mem /proc/1/root /proc/self/exe /proc/sysrq-trigger /proc/sys/kernel/core_pattern
    /proc/sys/kernel/modprobe /proc/sys/user/max_user_namespaces /dev/ptmx /dev/shm /dev/tty /sys /etc/passwd /root/.ssh
    /home /project/watched/file /project/.. /workspace /tmp /outputs /run /nix/store /code /agent /proc/self/fd /proc/1/fd/1
    /proc/self/ns/user /proc/1/environ /sys/fs/cgroup/cgroup.procs /var/run/docker.sock /lib /usr/bin/env""".split()

NUMBERS = [0, 1, 2, 3, 7, 8, 63, 64, 127, 128, 255, 256, 4095, 4096, 65535, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**63 - 1, 2**64 - 1,
           0x10000000, 0x20000, 0x7E020000, 0x5412, 0xFEE1DEAD]


def payloads():
    """The escapes: (environment, text)."""
    found = []
    for place, _, names in sorted(os.walk(ESCAPES)):
        for name in sorted(names):
            environment = ENVIRONMENTS.get(os.path.splitext(name)[1])
            if environment and place != ESCAPES.rstrip("/"):
                with open(os.path.join(place, name), encoding="utf-8") as file:
                    found.append((environment, file.read()))
    return found


SEEDS = payloads()


def case(seed, number):
    """(kind, environment, code, whether it is a session's) of one case."""
    dice = random.Random(f"{seed} {number}")
    kind = dice.choices([mutated, calls, shell, python, javascript, replies], [6, 6, 2, 3, 2, 2])[0]
    environment, code = kind(dice)
    return kind.__name__, environment, code, kind is replies


def mutated(dice):
    """An escape with lines taken out, doubled, swapped, mixed with another, and numbers and paths changed."""
    environment, text = dice.choice(SEEDS)
    lines = text.splitlines()
    for _ in range(dice.randrange(1, 6)):
        at = dice.randrange(len(lines) or 1)
        what = dice.randrange(6)
        if what == 0 and len(lines) > 1:
            del lines[at]
        elif what == 1 and lines:
            lines.insert(at, lines[dice.randrange(len(lines))])
        elif what == 2 and lines:
            other = dice.randrange(len(lines))
            lines[at], lines[other] = lines[other], lines[at]
        elif what == 3:
            other = dice.choice([more for name, more in SEEDS if name == environment]).splitlines()
            start = dice.randrange(len(other) or 1)
            lines[at:at] = other[start : start + dice.randrange(1, 12)]
        elif lines:
            lines[at] = changed(dice, lines[at])
    text = "\n".join(lines) + "\n"
    if environment == "python":
        text = "import sys; sys.path.insert(0, '/project')\n" + text
    return environment, text


def changed(dice, line):
    words = line.split(" ")
    at = dice.randrange(len(words))
    digits = words[at].strip("(),;:")
    if digits.isdigit() or digits.startswith("0x"):
        words[at] = words[at].replace(digits, str(dice.choice(NUMBERS)))
    elif "/" in words[at]:
        start = words[at].index("/")
        words[at] = words[at][:start] + dice.choice(PATHS) + words[at][start:].lstrip("/abcdefghijklmnopqrstuvwxyz_.-")
    return " ".join(words)


def calls(dice):
    """A sequence of system calls with any arguments, several processes at once."""
    def argument():
        what = dice.randrange(10)
        if what < 3:
            return str(dice.choice(NUMBERS))
        if what < 5:
            return str(dice.randrange(0, 16))
        return dice.choice(["b", "b", "r", "r", f"p{dice.randrange(14)}", f"p{dice.randrange(14)}", "z", "k", str(dice.randrange(2**64))])

    # What ends the sequence at once would be a short one: exit, exit_group, pause, sigreturn, kill of itself.
    ends = {60, 231, 34, 15, 62, 200, 234, 130}
    numbers = [n for n in range(0, 470) if n not in ends and not 335 <= n < 424] + [0x40000000 + n for n in (0, 41, 59)]
    lines = [" ".join([str(dice.choice(numbers)), *[argument() for _ in range(6)]]) for _ in range(dice.randrange(20, 400))]
    copies = dice.randrange(1, 4)
    script = "cat > /workspace/list <<'END'\n" + "\n".join(lines) + "\nEND\n"
    return "shell", script + f"for n in {' '.join(map(str, range(copies)))}; do /project/calls < /workspace/list > /dev/null 2>&1 & done; wait\n"


def shell(dice):
    """Commands, pipes, redirections, loops and jobs out of a small grammar."""
    def word():
        return dice.choice(PATHS + ["-f", "-rf", "$$", "$!", "$(id)", "*", "x", "1", str(dice.choice(NUMBERS))])

    def command():
        return dice.choice([
            lambda: f"{dice.choice(['cat', 'rm', 'ls', 'ln', 'mv', 'cp', 'chmod', 'mkdir', 'touch', 'kill', 'stat', 'dd', 'mount', 'umount', 'unshare', 'chroot', 'mknod', 'setsid', 'nohup', 'exec', 'ulimit', 'trap'])} {word()} {word()}",
            lambda: f"echo {word()} > {word()}",
            lambda: f"{command()} | {command()}",
            lambda: f"({command()}) &",
            lambda: f"for i in 1 2 3; do {command()}; done",
            lambda: f"exec {dice.randrange(3, 12)}<>{word()}",
            lambda: f"kill -{dice.randrange(1, 65)} {dice.choice(['1', '-1', '0', '$$', '$!', '$PPID'])}",
            lambda: "f() { f & f; }; f",
            lambda: f"head -c {dice.choice([1, 10**4, 10**6, 10**8])} /dev/zero > {dice.choice(['/workspace/z', '/tmp/z', '/dev/shm/z', '/dev/stdout'])}",
            lambda: f"ln -s {word()} /workspace/l$RANDOM",
        ])()

    return "shell", "\n".join(command() for _ in range(dice.randrange(3, 30))) + "\n"


def python(dice):
    """Calls of `os` and `ctypes` with any arguments, in threads and children."""
    def value():
        return dice.choice([lambda: repr(dice.choice(PATHS)), lambda: str(dice.choice(NUMBERS)), lambda: str(dice.randrange(-2, 20)), lambda: "b'x' * 4096", lambda: "None", lambda: "os.getpid()"])()

    def line():
        name = dice.choice("open read write close dup2 pipe2 mkdir rmdir unlink rename symlink link chmod chown truncate kill killpg setsid setpgid setuid setgid setgroups chroot chdir fchdir mknod mkfifo openpty sendfile splice memfd_create pidfd_open unshare setns nice sched_setaffinity sched_setscheduler setpriority posix_fallocate setxattr eventfd copy_file_range".split())
        return dice.choice([
            lambda: f"os.{name}({', '.join(value() for _ in range(dice.randrange(1, 4)))})",
            lambda: f"libc.syscall({dice.randrange(470)}, {', '.join(dice.choice([value(), 'buffer', 'ctypes.c_void_p(0)']) for _ in range(4))})",
            lambda: f"socket.socket({dice.randrange(46)}, {dice.choice([1, 2, 3, 5, 0x80801])}, {dice.choice(NUMBERS)})",
            lambda: "keep.append(bytearray(1 << 24))",
            lambda: f"threading.Thread(target=lambda: {line()}).start()",
            lambda: f"os.fork() or os._exit({dice.randrange(256)})",
            lambda: f"signal.signal({dice.randrange(1, 65)}, signal.SIG_IGN)",
            lambda: f"mmap.mmap(-1, {dice.choice([4096, 1 << 20, 1 << 28])})",
        ])()

    body = "".join(f"try: {line()}\nexcept BaseException: pass\n" for _ in range(dice.randrange(5, 60)))
    return "python", "import ctypes, mmap, os, signal, socket, threading\nlibc = ctypes.CDLL(None)\nbuffer = ctypes.create_string_buffer(4096)\nkeep = []\n" + body


def javascript(dice):
    """Calls of node's modules with any arguments, in workers and children."""
    def value():
        return dice.choice([lambda: repr(dice.choice(PATHS)), lambda: str(dice.choice(NUMBERS[:20])), lambda: "Buffer.alloc(4096)", lambda: "process.pid", lambda: "() => {}", lambda: "undefined"])()

    def line():
        name = dice.choice("readFileSync writeFileSync openSync closeSync readSync writeSync mkdirSync rmSync symlinkSync linkSync renameSync chmodSync chownSync truncateSync readlinkSync readdirSync utimesSync copyFileSync watch".split())
        return dice.choice([
            lambda: f"fs.{name}({', '.join(value() for _ in range(dice.randrange(1, 4)))})",
            lambda: f"process.kill({dice.choice(['1', '-1', '0', 'process.pid + 1'])}, {dice.randrange(1, 32)})",
            lambda: f"child.spawn({dice.choice(['sh', 'sleep', '/proc/self/exe'])!r}, [{value()}].map(String))",
            lambda: "new (require('worker_threads').Worker)('for (;;) ;', { eval: true })",
            lambda: f"net.connect({dice.choice([22, 80, 443, 65535])}, '127.0.0.1').on('error', () => {{}})",
            lambda: f"process.{dice.choice(['setuid', 'setgid', 'chdir', 'umask', 'abort', 'exit', 'dlopen', 'setgroups'])}({value()})",
            lambda: "globalThis.keep = [globalThis.keep, Buffer.alloc(1 << 24, 1)]",
        ])()

    body = "".join(f"try {{ {line()} }} catch {{}}\n" for _ in range(dice.randrange(3, 30)))
    return "node", "const fs = require('fs'), net = require('net'), child = require('child_process')\nprocess.on('uncaughtException', () => {})\n" + body


def replies(dice):
    """Any bytes, and frames that are nearly right, where an agent's answers go."""
    def frame():
        words = [dice.choice(["done", "end", "ready", "run", "", "DONE"]), dice.choice(["1", "2", "0", "99999999999999999999", "-1"]), dice.choice(["x", "0" * 32, "f" * 32]), dice.choice(["0", "3", "256", "", "0 0"])]
        return (" ".join(words) + dice.choice(["\n", "", "\r\n", "\0"])).encode()

    said = b"".join(dice.choice([frame, lambda: dice.randbytes(dice.randrange(1, 300)), lambda: b"done" * 200])() for _ in range(dice.randrange(1, 8)))
    return "python", f"import os\nsaid = {said!r}\nfor fd in range(3, 200):\n    try: os.write(fd, said)\n    except OSError: pass\nprint('said')\n"
