# Uses up the key quota, which counts per user of the host.
from call import *

answers = {name(syscall("add_key", b"user", b"k%d" % n, b"y", 1, -2)) for n in range(300)}
show("add_key", " ".join(sorted(answers)))
