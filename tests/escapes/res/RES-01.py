# Processes without end: each waits, so that the limit is met and nothing else.
import os
import signal

from call import attempt, show

count = 0


def fork():
    if os.fork() == 0:
        signal.pause()


while count < 200 and (answer := attempt(fork)) == "ok":
    count += 1
show("forked", f"{count}, then {answer}")
