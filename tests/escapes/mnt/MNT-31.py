# Mounts that would pass from the host into the sandbox or back.
from call import *

fields = [line.split(" - ")[0].split()[6:] for line in open("/proc/self/mountinfo")]
show("mounts", "some" if fields else "none")
show("shared, slave or unbindable", sum(bool(optional) for optional in fields))
