# Urgent data on Unix sockets (CVE-2025-38236).
import socket
from call import *

one, other = socket.socketpair()
show("send", attempt(one.send, b"x", socket.MSG_OOB))
show("sendmsg", attempt(one.sendmsg, [b"x"], [], socket.MSG_OOB))
show("recv", attempt(other.recv, 1, socket.MSG_OOB | socket.MSG_DONTWAIT))
show("recvmsg", attempt(other.recvmsg, 1, 0, socket.MSG_OOB | socket.MSG_DONTWAIT))
