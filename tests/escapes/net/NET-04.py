# Netlink speaks to the kernel's configuration: only the routing table is left, since names of
# interfaces and look-ups need it.
import os
import socket

from call import name, show, syscall

KINDS = {
    "ROUTE": 0, "USERSOCK": 2, "SOCK_DIAG": 4, "XFRM": 6, "SELINUX": 7, "AUDIT": 9, "FIB_LOOKUP": 10,
    "NETFILTER": 12, "KOBJECT_UEVENT": 15, "GENERIC": 16, "CRYPTO": 21,
}
for kind, number in KINDS.items():
    for flags in socket.SOCK_RAW, socket.SOCK_DGRAM:
        result = syscall("socket", socket.AF_NETLINK, flags | socket.SOCK_CLOEXEC, number)
        if result >= 0:
            os.close(result)
    show(kind, name(result))
show("interfaces", " ".join(interface for _, interface in socket.if_nameindex()))
addresses = {address[4][0] for address in socket.getaddrinfo("localhost", 80)}
show("localhost", "loopback" if addresses <= {"127.0.0.1", "::1"} else addresses)
