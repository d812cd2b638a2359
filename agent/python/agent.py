"""The Python agent: runs cells sent by the server inside one live interpreter.

The protocol is in ../README.md.  Two thoughts shape this file:

* User code shares this interpreter, so everything needed after the first cell is
  bound here beforehand.  A cell may spoil `builtins`, `os` or `sys.modules`; that
  may break its own session, but it does not silently change an answer.
* User code should see an ordinary interpreter: a real `__main__`, plain
  descriptors 0, 1, 2, ordinary streams, and tracebacks that start at its own line.
"""

import _ast  # the compiler's half of `ast`: all we need, at no start-up cost
import builtins
import faulthandler
import fcntl
import linecache
import os
import sys
import traceback
from _signal import SIGINT, default_int_handler, getsignal, signal  # less Python code to break
from builtins import *  # noqa: F403 - our own copies: `del builtins.print` must not reach us
from contextvars import copy_context
from os import _exit, close, getpid, read, write
from sys import __excepthook__ as excepthook
from types import ModuleType

PROTOCOL = 1
INTERRUPTED = 130
CO_COROUTINE = 0x80
COMPILE_FLAGS = _ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
FUTURE_FLAGS = 0x1FE0000  # every `from __future__` bit, so that a cell's choice lasts
CELL = "<cell "


class Wire:
    """The private descriptors: requests come on 3, replies leave on 4."""

    def __init__(self):
        self.requests = self._take(3)
        self.replies = self._take(4)
        self.buffer = b""
        # A fork without exec ignores close-on-exec; let it forget the wire, so that
        # the server sees the end of file when *we* end.
        os.register_at_fork(after_in_child=self.hang_up)

    @staticmethod
    def _take(fd):
        # Above the numbers people use, below 256: `os.closerange(0, 256)` then ends
        # the session at once instead of leaving one that can no longer print.
        moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 100)
        close(fd)
        return moved

    def hang_up(self):
        for fd in (self.requests, self.replies):
            try:
                close(fd)
            except OSError:
                pass

    def _fill(self):
        try:
            chunk = read(self.requests, 1 << 16)
        except KeyboardInterrupt:  # user code put the default handler back: ignore
            return
        if not chunk:
            raise EOFError
        self.buffer += chunk

    def next(self):
        """The next request: (id, nonce, source).  EOFError when the server is gone."""
        while b"\n" not in self.buffer:
            self._fill()
        header, _, self.buffer = self.buffer.partition(b"\n")
        verb, ident, nonce, length = header.decode("ascii").split(" ")
        if verb != "run":
            raise EOFError
        length = int(length)
        while len(self.buffer) < length:
            self._fill()
        source, self.buffer = self.buffer[:length], self.buffer[length:]
        return ident, nonce, source

    def say(self, *words):
        write(self.replies, (" ".join(map(str, words)) + "\n").encode("ascii"))


class Interrupts:
    """SIGINT breaks a running call and nothing else."""

    def __init__(self):
        self.armed = False
        self.install()

    def install(self):
        signal(SIGINT, self.handle)

    def disarm(self):
        self.armed = False
        if getsignal(SIGINT) is default_int_handler:  # put back by a cell; ours is the same, but patient
            self.install()

    def handle(self, signum, frame):
        if self.armed:
            raise KeyboardInterrupt


class Compiler:
    """Turns a cell into code objects; the last expression becomes one that echoes."""

    def __init__(self):
        self.futures = 0

    def cell(self, source, name):
        """The cell's code objects, in their order."""
        # Registered with no modification time, which linecache takes as "never stale".
        lines = (source.decode("utf-8", "replace") + "\n").splitlines(True)
        linecache.cache[name] = (len(source), None, lines, name)
        tree = self._compile(source, name, "exec", _ast.PyCF_ONLY_AST)
        last = None
        if tree.body and isinstance(tree.body[-1], _ast.Expr):
            last = tree.body.pop()
        codes = []
        if tree.body:
            codes.append(self._code(tree, name, "exec"))
        if last is not None:
            codes.append(self._code(_ast.Interactive([last]), name, "single"))
        return codes

    def _code(self, tree, name, mode):
        code = self._compile(tree, name, mode)
        self.futures |= code.co_flags & FUTURE_FLAGS
        return code

    def _compile(self, source, name, mode, flags=0):
        return compile(source, name, mode, COMPILE_FLAGS | self.futures | flags, dont_inherit=True)


class Agent:
    def __init__(self):
        self.wire = Wire()
        self.pid = getpid()
        self.stdin, self.stdout, self.stderr = open_streams()
        self.interrupts = Interrupts()
        self.compiler = Compiler()
        self.loop = None
        self.own_path = list(sys.path)
        self.main = prepare_main()

    def serve(self):
        self.wire.say("ready", PROTOCOL)
        while True:
            ident, nonce, source = self.wire.next()
            status = self.call(source, CELL + ident + ">")
            if getpid() != self.pid:  # a fork that fell out of its cell is not the agent
                _exit(status)
            self.wire.say("done", ident, nonce, status)

    def call(self, source, name):
        """Runs one cell to the end, its output flushed, whatever it raises."""
        status = INTERRUPTED
        try:
            self.interrupts.armed = True
            status = self.run(source, name)
            self.flush()
            self.interrupts.disarm()
        except BaseException as error:  # an interrupt while reporting, or a broken report
            self.interrupts.disarm()
            self.last_words(error)
            if not isinstance(error, KeyboardInterrupt):
                status = 1
        return status

    def run(self, source, name):
        # Or a warning from the same line of an earlier cell would hide this one's.
        self.main.pop("__warningregistry__", None)
        try:
            codes = self.compiler.cell(source, name)
            if any(code.co_flags & CO_COROUTINE for code in codes):
                self.run_on_loop(codes)
            else:
                for code in codes:
                    eval(code, self.main)
            return 0
        except SystemExit as error:
            return self.exit_status(error.code)
        except BaseException as error:
            self.report(error)
            return INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1

    def run_on_loop(self, codes):
        """Runs all of a cell as one task on the session's loop: what precedes an `await` may need it too."""
        loop = self.event_loop()
        variables = {}
        task = loop.create_task(self.task(codes, variables))
        try:
            loop.run_until_complete(task)
        except BaseException:
            if not task.done():  # interrupted: the cell must not go on behind our back
                task.cancel()
                loop.run_until_complete(self.asyncio.wait([task]))
            raise
        finally:  # a task has a context of its own, but what a cell sets is to last
            for variable, value in variables.items():
                variable.set(value)

    async def task(self, codes, variables):
        try:
            for code in codes:
                result = eval(code, self.main)
                if code.co_flags & CO_COROUTINE:
                    await result
        finally:
            variables.update(copy_context())

    def event_loop(self):
        if self.loop is None or self.loop.is_closed():
            # Late, because it is slow, and without the user's directory on the path.
            path, sys.path = sys.path, self.own_path
            try:
                import asyncio
            finally:
                sys.path = path
            self.asyncio = asyncio
            self.loop = asyncio.new_event_loop()
            asyncio.set_event_loop(self.loop)
        return self.loop

    def exit_status(self, code):
        if sys.stdin is self.stdin and self.stdin.closed:  # quit() closes it
            sys.stdin = self.stdin = open_stdin()
        if code is None:
            return 0
        if isinstance(code, int):
            return code & 0xFF
        self.flush()
        self.stderr.write(str(code) + "\n")
        return 1

    def report(self, error):
        self.flush()
        hide_agent(error)
        # `traceback` imports late (`ast`): not from the user's directory.
        path, sys.path = sys.path, self.own_path
        try:
            lines = traceback.format_exception(type(error), error, error.__traceback__)
        except Exception:  # a cell broke what `traceback` stands on; C code needs less
            return excepthook(type(error), error, error.__traceback__)
        finally:
            sys.path = path
        self.stderr.write("".join(lines))

    def last_words(self, error):
        """The plainest possible report; touches no code of the user's."""
        try:
            self.stderr.write(type(error).__name__ + "\n")
            self.stderr.flush()
        except BaseException:
            pass

    def flush(self):
        # Ours and theirs: a cell may have put another object in place.
        for stream in (getattr(sys, "stdout", None), getattr(sys, "stderr", None), self.stdout, self.stderr):
            try:
                stream.flush()
            except KeyboardInterrupt:
                raise
            except BaseException:
                pass


def hide_agent(error):
    """Lets every traceback that begins in this file begin at the user's line instead."""
    todo, seen = [error], set()
    while todo:
        error = todo.pop()
        if error is None or id(error) in seen:
            continue
        seen.add(id(error))
        error.__traceback__ = without_agent(error.__traceback__)
        todo += [error.__cause__, error.__context__, *getattr(error, "exceptions", ())]


def without_agent(trace):
    if trace is not None and file_of(trace) == __file__:
        # What lies between us and the cell (asyncio, say) is our doing too.
        while trace is not None and not file_of(trace).startswith(CELL):
            trace = trace.tb_next
    above = trace
    while above is not None and above.tb_next is not None:  # SIGINT ends in our handler
        if file_of(above.tb_next) == __file__:
            above.tb_next = above.tb_next.tb_next
        else:
            above = above.tb_next
    return trace


def file_of(trace):
    return trace.tb_frame.f_code.co_filename


def open_stdin():
    return open(0, encoding="utf-8", errors="surrogateescape", closefd=False)


def open_streams():
    """Line-buffered streams on the plain descriptors; what cannot be encoded is escaped."""

    def output(fd):
        return open(fd, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)

    sys.stdin, sys.stdout, sys.stderr = streams = open_stdin(), output(1), output(2)
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = streams
    faulthandler.enable(2)  # a crash then says at which line
    return streams


def prepare_main():
    """A real `__main__` for the user, and the surroundings a script would find."""
    main = ModuleType("__main__")
    main.__builtins__ = builtins
    sys.modules["__main__"] = main
    sys.argv = [""]
    offer_figures()
    sys.path.insert(0, os.getcwd())
    if sys.version_info >= (3, 14):
        fork_by_default()
    return main.__dict__


def offer_figures():
    """Makes `plt.show()` save files, here and in scripts that a cell starts."""
    if "MPLBACKEND" in os.environ:
        return
    library = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib")
    sys.path.append(library)
    inherited = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = inherited + os.pathsep + library if inherited else library
    os.environ["MPLBACKEND"] = "module://figure_files"


def fork_by_default():
    """Only a forked worker can see functions that live in a cell.

    Since 3.14 `multiprocessing` prefers a fork server, whose workers would look for
    them in a file.  We change the default and leave the user's choice open, which
    the public `set_start_method` would not.
    """
    from multiprocessing import context

    context._default_context._default_context = context._concrete_contexts["fork"]


if __name__ == "__main__":
    agent = Agent()
    try:
        agent.serve()
    except EOFError:
        pass
    except OSError:  # the wire was closed under us: end, rather than answer wrongly
        _exit(1)
