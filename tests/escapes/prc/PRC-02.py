# Knobs of the kernel that name a program to run, or weaken everybody: whether one can be opened to be
# written. Nothing is written.
from call import *


def opening(path):
    return attempt(lambda: os.close(os.open(path, os.O_WRONLY)))


for knob in (
    "kernel/core_pattern", "kernel/modprobe", "kernel/hotplug", "kernel/poweroff_cmd",
    "kernel/randomize_va_space", "kernel/sysrq", "vm/overcommit_memory", "vm/drop_caches",
    "fs/file-max", "fs/suid_dumpable", "fs/binfmt_misc/register",
):
    answer = opening(f"/proc/sys/{knob}")
    if answer not in ("EACCES", "EROFS", "ENOENT"):
        show(knob, answer)
answers = set()
for directory, _, files in os.walk("/proc/sys"):
    for file in files:
        answer = opening(os.path.join(directory, file))
        answers.add(f"{answer} {directory}/{file}" if answer == "ok" else answer)
show("all of /proc/sys", " ".join(sorted(answers)))
