# Flags of landlock_restrict_self(2), which version 7 brought: what is unknown must be refused, so that
# the engine may ask for what a kernel has.
import ctypes
import os

from call import name, show, syscall

CREATE_RULESET, RESTRICT_SELF, VERSION = 444, 446, 1
version = syscall(CREATE_RULESET, 0, 0, VERSION)
handled = ctypes.c_uint64(1 << 13)  # make device nodes: nobody here can anyway
ruleset = syscall(CREATE_RULESET, ctypes.byref(handled), 8, 0)
show("an own rule set", name(ruleset))
show("an unknown flag", name(syscall(RESTRICT_SELF, ruleset, 1 << 31)))
quiet = syscall(RESTRICT_SELF, ruleset, 1)  # LOG_SAME_EXEC_OFF
show("LOG_SAME_EXEC_OFF", "as its version says" if name(quiet) == ("ok" if version >= 7 else "EINVAL") else name(quiet))
