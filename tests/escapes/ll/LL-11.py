# Below a Landlock domain no mount can be changed; had the engine entered it too early, there would be
# no sandbox.
from call import call

NONE = b""
call("mount", b"none", b"/tmp", b"tmpfs", 0, 0)
call("mount", b"/tmp", b"/workspace", NONE, 4096, 0, label="bind")
call("mount", NONE, b"/", NONE, 1 << 18, 0, label="make private")
call("mount", NONE, b"/tmp", NONE, 32 | 1, 0, label="remount")
call("umount2", b"/tmp", 2)
call("pivot_root", b"/tmp", b"/tmp")
call("open_tree", -100, b"/tmp", 1)
call("move_mount", -100, b"/tmp", -100, b"/workspace", 0)
