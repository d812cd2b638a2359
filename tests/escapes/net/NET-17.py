# What look-ups read: who localhost is, and that there is no name server, so that they fail at once.
import os
import socket
import time

from call import show

for path in "/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf":
    with open(path) as file:
        lines = [line for line in file.read().splitlines() if not line.startswith("#")]
    kind = "a link" if os.path.islink(path) else "a file"
    show(path, f"{kind}, {' | '.join(lines) or 'no entry'}")
start = time.monotonic()
for host in "localhost", socket.gethostname(), "example.com", "host.docker.internal":
    try:
        found = {address[4][0] for address in socket.getaddrinfo(host, 80)}
        show(host, "loopback" if found <= {"127.0.0.1", "::1"} else found)
    except socket.gaierror:
        show(host, "no such name")
show("in all", "at once" if time.monotonic() - start < 1 else "late")
