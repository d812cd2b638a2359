# Descriptors travel over sockets only, and none is shared with the host.
import ctypes
import os
import socket

from call import name, show, syscall

SENDMSG, RECVMSG = 46, 47
message = ctypes.create_string_buffer(56)  # a msghdr with nothing in it
for number in sorted(map(int, os.listdir("/proc/self/fd"))):
    try:
        os.fstat(number)
    except OSError:
        continue  # the directory that was listed
    show(f"sendmsg over {number}", name(syscall(SENDMSG, number, message, 0)))
    show(f"recvmsg from {number}", name(syscall(RECVMSG, number, message, 0x40)))
one, other = socket.socketpair()
socket.send_fds(one, [b"x"], [0])
show("among themselves", "ok" if socket.recv_fds(other, 1, 1)[1] else "none")
