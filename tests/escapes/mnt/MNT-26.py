# A new file in every directory that is nobody's to write.
from call import *

for place in (
    "/", "/etc", "/usr", "/usr/bin", "/usr/lib", "/bin", "/nix/store", "/project", "/proc",
    "/proc/sys", "/proc/self", "/dev", "/dev/pts", "/workspace", "/tmp", "/dev/shm",
):
    answer = attempt(os.open, os.path.join(place, "made"), os.O_CREAT | os.O_WRONLY)
    show(place, answer)
