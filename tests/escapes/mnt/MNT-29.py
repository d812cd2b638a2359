# What the mount table tells of the host: by the calls that list mounts, and by the file of one's own.
import sys
from call import *

request = (ctypes.c_uint64 * 8)(64, 0xFFFFFFFFFFFFFFFF, 0, 0)
buffer = ctypes.create_string_buffer(4096)
call("listmount", ctypes.byref(request), buffer, 512, 0)
call("statmount", ctypes.byref(request), buffer, 4096, 0)
ROOTS = "/usr", "/bin", "/lib", "/sbin", "/etc", "/nix/store", "/dev", "/proc", sys.base_prefix
host_paths = []
for line in open("/proc/self/mountinfo"):
    root, place = line.split()[3:5]
    if root != "/" and not root.startswith("/.masked-") and not place.startswith(ROOTS):
        host_paths.append(place)
show("mounts that tell where they come from", " ".join(host_paths))
