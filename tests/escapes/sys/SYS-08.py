# Uses up the inotify instances and watches, which count per user of the host.
from call import *

instances, watches = [], 0
for _ in range(200):
    result = libc.inotify_init1(0)
    if result < 0:
        show("instances", f"{len(instances)}, then {errno.errorcode[ctypes.get_errno()]}")
        break
    instances.append(result)
for number in range(10000):
    path = f"/tmp/{number}"
    os.close(os.open(path, os.O_CREAT))
    if libc.inotify_add_watch(instances[0], path.encode(), 2) < 0:
        show("watches", f"{number}, then {errno.errorcode[ctypes.get_errno()]}")
        break
