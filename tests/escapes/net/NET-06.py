# Out: over TCP, UDP and by name, in both versions of IP. The answer has to come at once.
import socket
import time

from call import attempt, show

OUTSIDE = {socket.AF_INET: "1.1.1.1", socket.AF_INET6: "2606:4700:4700::1111"}
start = time.monotonic()
for family, address in OUTSIDE.items():
    for kind in socket.SOCK_STREAM, socket.SOCK_DGRAM:
        outside = socket.socket(family, kind)
        show(f"{family.name} {kind.name} connect", attempt(outside.connect, (address, 443)))
    show(f"{family.name} sendto", attempt(socket.socket(family, kind).sendto, b"x", (address, 53)))
for host in "example.com", "1.1.1.1.in-addr.arpa", "sandbox.invalid":
    try:
        socket.getaddrinfo(host, 443)
        show(host, "ok")
    except socket.gaierror:
        show(host, "no such name")
show("in all", "at once" if time.monotonic() - start < 1 else "late")
