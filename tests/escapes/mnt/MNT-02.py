# Takes away mounts that hide something (CVE-2019-19921, CVE-2023-27561).
from call import *

DETACH, NOFOLLOW = 2, 8
call("umount2", b"/proc", DETACH, label="/proc")
call("umount2", b"/proc/sys", DETACH | NOFOLLOW, label="/proc/sys")
places = [line.split()[4] for line in open("/proc/self/mountinfo")]
masks = [place for place in places if place.startswith("/proc/") and place != "/proc/sys"]
answers = {name(syscall("umount2", mask.encode(), DETACH)) for mask in masks}
show("masks", " ".join(sorted(answers)))
