# A server and a client inside find each other on every loopback address: programs count on it.
import socket

from call import show

for host in "127.0.0.1", "127.8.8.8", "::1", "localhost", "0.0.0.0", "::":
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as server:
        with socket.create_connection((host, server.getsockname()[1]), 5) as client:
            server.accept()[0].sendall(b"hello")
            show(f"TCP {host}", client.recv(9).decode())
for host in "127.0.0.1", "::1":
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    one, other = socket.socket(family, socket.SOCK_DGRAM), socket.socket(family, socket.SOCK_DGRAM)
    one.bind((host, 0))
    other.sendto(b"hello", one.getsockname())
    show(f"UDP {host}", one.recv(9).decode())
for place in "/workspace/socket", "/tmp/socket", "\0abstract":
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        server.bind(place)
        server.listen()
        client.connect(place)
        server.accept()[0].sendall(b"hello")
        show(f"UNIX {place[1:]}", client.recv(9).decode())
