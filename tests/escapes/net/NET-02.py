# The way to the hypervisor, which no network namespace covers, and Windows beside WSL: what starts
# with "MZ" would be run by the host's interop.
import os
import socket

from call import attempt, name, show, syscall

for kind in "STREAM", "DGRAM", "SEQPACKET":
    show(f"AF_VSOCK {kind}", name(syscall("socket", 40, getattr(socket, f"SOCK_{kind}"), 0)))
for path in "/dev/vsock", "/dev/vhost-vsock", "/run/WSL", "/init", "/mnt/c":
    show(path, attempt(os.lstat, path))
show("WSL_INTEROP", os.environ.get("WSL_INTEROP", "unset"))
with open("/workspace/cmd.exe", "wb") as file:
    file.write(b"MZ" + bytes(1022))
os.chmod("/workspace/cmd.exe", 0o755)
show("cmd.exe", attempt(os.execv, "/workspace/cmd.exe", ["cmd.exe"]))
