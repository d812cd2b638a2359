# Paths of the Nix store outside of the closure; each path of the closure is a mount of its own.
from call import *

mounted = {line.split()[4] for line in open("/proc/self/mountinfo")}
shown = os.listdir("/nix/store") if os.path.isdir("/nix/store") else []
show("not of the closure", sum(f"/nix/store/{path}" not in mounted for path in shown))
