# Descriptors left open by whoever started the program: a namespace, a directory, a socket.
from call import *

for descriptor in os.listdir("/proc/self/fd"):
    try:
        show(descriptor, os.readlink(f"/proc/self/fd/{descriptor}").split(":")[0])
    except FileNotFoundError:
        pass  # the listing's own
