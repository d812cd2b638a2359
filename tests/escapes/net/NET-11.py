# Sockets behind which somebody starts programs outside of the sandbox for whoever asks.
import os
import socket

from call import attempt

PLACES = """
/var/run/docker.sock /run/docker.sock /run/user/1000/docker.sock /run/podman/podman.sock
/run/user/1000/podman/podman.sock /run/containerd/containerd.sock /run/k3s/containerd/containerd.sock
/run/crio/crio.sock /run/buildkit/buildkitd.sock /run/libvirt/libvirt-sock
/var/run/libvirt/libvirt-sock /run/snapd.socket /run/snapd-snap.socket
/nix/var/nix/daemon-socket/socket /run/nix/daemon-socket/socket /run/systemd/io.systemd.Manager
/run/systemd/journal/stdout /run/systemd/notify /run/systemd/userdb/io.systemd.DynamicUser
/run/lxd.socket /var/lib/lxd/unix.socket /var/snap/lxd/common/lxd/unix.socket /run/incus/unix.socket
/run/udev/control /run/acpid.socket /dev/log /run/WSL/1_interop /run/qemu-server/0.qmp
"""
answers = {place: attempt(socket.socket(socket.AF_UNIX).connect, place) for place in PLACES.split()}
for place, answer in answers.items():
    if answer != "ENOENT":
        print(f"{place}: {answer}")
print("all others: ENOENT")
# Whatever else: every socket file that can be found without following a link.
found = 0
for top in "/run", "/var", "/etc", "/usr", "/nix", "/dev", "/tmp", "/opt", "/home", "/root", "/srv":
    for place, _, files in os.walk(top):
        for file in files:
            try:
                found += os.lstat(os.path.join(place, file)).st_mode & 0o170000 == 0o140000
            except OSError:
                pass
print("socket files:", found)
