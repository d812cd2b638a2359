# Devices that are not what they are called (CVE-2025-31133, CVE-2025-52565).
import stat
from call import *

for device in "null", "zero", "full", "random", "urandom", "tty":
    found = os.lstat(f"/dev/{device}")
    kind = "device" if stat.S_ISCHR(found.st_mode) else "no device"
    show(device, f"{kind} {os.major(found.st_rdev)}:{os.minor(found.st_rdev)}")
