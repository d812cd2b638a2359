# Listeners of the host on its loopback; the test holds the two whose ports stand in the project.
import errno
import socket

from call import show

for family, address, file in [
    (socket.AF_INET, "127.0.0.1", "port4"), (socket.AF_INET6, "::1", "port6"),
    (socket.AF_INET, "0.0.0.0", "port4"),
]:
    with open(f"/project/{file}") as port:
        result = socket.socket(family).connect_ex((address, int(port.read())))
    show(address, errno.errorcode.get(result, result))
