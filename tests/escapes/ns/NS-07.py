# Mounts of one's own in a nested user namespace: tmpfs, over-mounting, overlayfs (CVE-2023-0386).
from call import *

for directory in "m", "u", "w":
    os.makedirs(f"/tmp/{directory}", exist_ok=True)
call("unshare", 0x10000000 | 0x20000, label="unshare(NEWUSER|NEWNS)")
call("mount", b"x", b"/tmp/m", b"tmpfs", 0, 0, label="mount(tmpfs)")
call("mount", b"x", b"/project", b"tmpfs", 0, 0, label="mount over /project")
call("mount", b"x", b"/tmp/m", b"overlay", 0, b"lowerdir=/usr,upperdir=/tmp/u,workdir=/tmp/w",
     label="mount(overlay)")
