# Another root.
from call import *

call("pivot_root", b".", b".")
call("chroot", b"/tmp")
