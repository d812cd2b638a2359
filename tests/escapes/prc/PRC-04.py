# What tells of the kernel's code, its memory map and its devices.
from call import *

for file in (
    "kallsyms", "modules", "iomem", "ioports", "config.gz", "interrupts", "diskstats", "partitions",
    "kcore", "kmsg", "slabinfo", "timer_list", "vmallocinfo", "softirqs", "swaps", "crypto",
):
    show(file, reading(f"/proc/{file}"))
