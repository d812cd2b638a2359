# Landlock knows TCP from version 4 on, UDP from version 10, and raw sockets never: what must hold on
# every kernel is the network namespace.
import socket

from call import attempt, name, show, syscall

show("TCP bind", attempt(socket.socket().bind, ("0.0.0.0", 8080)))
show("TCP out", attempt(socket.socket().connect, ("192.0.2.1", 80)))
show("UDP bind", attempt(socket.socket(type=socket.SOCK_DGRAM).bind, ("0.0.0.0", 8080)))
show("UDP out", attempt(socket.socket(type=socket.SOCK_DGRAM).sendto, b"x", ("192.0.2.1", 53)))
show("raw IP", name(syscall("socket", socket.AF_INET, socket.SOCK_RAW, 255)))
show("packet", name(syscall("socket", socket.AF_PACKET, socket.SOCK_RAW, 0x300)))
show("interfaces", " ".join(interface for _, interface in socket.if_nameindex()))
