# Signals and abstract sockets to the outside: Landlock scopes them from version 6 on; the namespaces
# have to on every kernel.
import os
import socket

from call import attempt, show

with open("/project/abstract") as file:
    show("the host's abstract socket", attempt(socket.socket(socket.AF_UNIX).connect, "\0" + file.read()))
with open("/project/pid") as file:
    show("a process of the host", attempt(os.kill, int(file.read()), 0))
show("pid 1", attempt(os.kill, 1, 0))
show("all of them", attempt(os.kill, -1, 0))
show("itself", attempt(os.kill, os.getpid(), 0))
