# Another kernel, or more of this one.
from call import *

call("kexec_load", 0, 0, 0, 0)
call("kexec_file_load", -1, -1, 0, 0, 0)
call("init_module", b"", 0, b"")
call("finit_module", -1, b"", 0)
call("delete_module", b"none", 0)
call("create_module", b"none", 4096)
