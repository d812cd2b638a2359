# The descriptors of pid 1 by pidfd_getfd(2): the report pipe.
from call import *

pidfd = syscall("pidfd_open", 1, 0)
show("pidfd_open", name(pidfd))
answers = {name(syscall("pidfd_getfd", pidfd, number, 0)) for number in range(16)}
show("pidfd_getfd", " ".join(sorted(answers)))
