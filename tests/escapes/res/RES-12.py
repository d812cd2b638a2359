# Sockets: as many as may be, full; and descriptors that are nowhere but on their way.
import socket

from call import attempt, show

pairs, sent = [], 0


def send():
    # A pair of its own each time, so that no buffer is full before the limit is met.
    global sent
    if sent % 200 == 0:
        pairs.append(socket.socketpair())
    socket.send_fds(pairs[-1][0], [b"x"], [0] * 100)
    sent += 100


while sent < 100_000 and (answer := attempt(send)) == "ok":
    pass
show("descriptors on their way", f"{'at most 4200' if sent <= 4200 else sent}, then {answer}")
for pair in pairs:
    for end in pair:
        end.close()
full = []


def fill():
    full.append(socket.socketpair())
    full[-1][0].setblocking(False)
    while True:
        try:
            full[-1][0].send(bytes(65536))
        except BlockingIOError:
            return


while len(full) < 3000 and (answer := attempt(fill)) == "ok":
    pass
show("full sockets", f"{'fewer' if len(full) < 2048 else 'more'} than 2048, then {answer}")
