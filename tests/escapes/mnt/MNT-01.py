# mount(2): every kind that a process with rights would try.
from call import *

os.makedirs("/tmp/m", exist_ok=True)
for kind in "tmpfs", "proc", "sysfs", "cgroup2", "devpts", "mqueue", "overlay", "fuse":
    call("mount", b"x", b"/tmp/m", kind.encode(), 0, 0, label=kind)
call("mount", b"/usr", b"/tmp/m", None, 4096, 0, label="bind")
call("mount", b"/tmp", b"/workspace", None, 8192, 0, label="move")
call("mount", b"none", b"/", None, 1 << 20, 0, label="shared")
