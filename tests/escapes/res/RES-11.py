# Pipes: 10,000 of them, each as large as it may be. What they hold counts for the host's user.
import fcntl
import os

from call import attempt, show

F_SETPIPE_SZ = 1031
pipes, grown, refused = [], 0, set()


def pipe():
    pipes.append(os.pipe())


while len(pipes) < 10_000 and (answer := attempt(pipe)) == "ok":
    growth = attempt(fcntl.fcntl, pipes[-1][1], F_SETPIPE_SZ, 1 << 20)
    grown += growth == "ok"
    refused.add(growth)
show("pipes", f"{'fewer' if len(pipes) < 2048 else 'more'} than 2048, then {answer}")
show("of 1 MiB", "at most 64" if grown <= 64 else grown)
show("beyond", " ".join(sorted(refused - {"ok"})))
show("2 MiB", attempt(fcntl.fcntl, pipes[0][1], F_SETPIPE_SZ, 2 << 20))
