# What is in /dev, and whether anything that speaks to a driver can be opened.
import glob
from call import *

show("/dev", " ".join(sorted(os.listdir("/dev"))))
show("/dev/pts", " ".join(sorted(os.listdir("/dev/pts"))))
for device in (
    "kmsg", "mem", "kmem", "port", "kvm", "fuse", "net/tun", "vda", "sda", "nvme0", "dri/card0",
    "snd/timer", "input/event0", "vsock", "vhost-vsock", "vhost-net", "uinput", "loop-control",
    "console", "ttyS0", "hwrng", "ptp0", "cpu_dma_latency", "userfaultfd",
):
    answer = reading(f"/dev/{device}", 1)
    if answer != "ENOENT":
        show(device, answer)
