# A socket file in the project, behind which a server of the host listens: a read-only mount does not
# refuse connect(2).
import socket

from call import attempt, show

for kind, file in (socket.SOCK_STREAM, "socket"), (socket.SOCK_DGRAM, "datagrams"):
    try:
        client = socket.socket(socket.AF_UNIX, kind)
    except OSError as error:
        show(f"socket {kind.name}", socket.errno.errorcode[error.errno])
        continue
    show(f"connect {kind.name}", attempt(client.connect, f"/project/{file}"))
one, other = socket.socketpair()
one.sendall(b"x")
show("pair", other.recv(1).decode())
