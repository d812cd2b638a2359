# Files that a host keeps behind links, such as /etc/resolv.conf: a rule on a directory does not hold
# for where a link in it leads.
import os

from call import reading, show

for path in "/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/passwd":
    show(path, "readable" if reading(path).endswith("bytes") else reading(path))
lost = []
for directory in os.environ["PATH"].split(":"):
    for program in sorted(os.listdir(directory)) if os.path.isdir(directory) else []:
        path = os.path.join(directory, program)
        # What leads out of the tree is not there; what is there must be readable.
        if os.path.isfile(path) and os.stat(path).st_mode & 0o004 and reading(path, 1) == "EACCES":
            lost.append(path)
show("programs that cannot be read", " ".join(lost) or "none")
