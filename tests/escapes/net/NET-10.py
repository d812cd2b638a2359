# The desktop: X, Wayland, D-Bus, the agents of ssh and gpg, by variable, by file, and by an abstract
# socket that the test holds.
import os
import socket

from call import attempt, show

NAMES = """DISPLAY WAYLAND_DISPLAY XAUTHORITY DBUS_SESSION_BUS_ADDRESS SSH_AUTH_SOCK SSH_AGENT_PID
GPG_AGENT_INFO GPG_TTY XDG_RUNTIME_DIR"""
show("variables", " ".join(name for name in NAMES.split() if name in os.environ) or "none")
uid = os.getuid()
answers = {}
for place in [
    "/tmp/.X11-unix/X0", f"/run/user/{uid}/wayland-0", f"/run/user/{uid}/bus", "/run/user/0/bus",
    "/run/dbus/system_bus_socket", "/var/run/dbus/system_bus_socket", "/run/systemd/private",
    f"/run/user/{uid}/gnupg/S.gpg-agent", f"/run/user/{uid}/systemd/private", "/run/user/0/systemd/private",
]:
    answers.setdefault(attempt(socket.socket(socket.AF_UNIX).connect, place), []).append(place)
for answer, places in answers.items():
    show(f"{len(places)} files", answer)
with open("/project/abstract") as file:
    mine = "\0" + file.read()
for what, place in ("the test's", mine), ("X", "\0/tmp/.X11-unix/X0"), ("D-Bus", "\0/tmp/dbus-session"):
    show(f"abstract, {what}", attempt(socket.socket(socket.AF_UNIX).connect, place))
