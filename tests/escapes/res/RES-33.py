# What holds where nothing can be put into a cgroup: limits of each process and of the user, and sized
# file systems. What then is not limited has to be in the result.
import resource

from call import show

for limit in "CORE", "NPROC", "NOFILE", "FSIZE", "MEMLOCK", "MSGQUEUE", "NICE", "RTPRIO", "AS", "DATA":
    soft, hard = resource.getrlimit(getattr(resource, f"RLIMIT_{limit}"))
    show(limit, "none" if hard == resource.RLIM_INFINITY else "limited")
