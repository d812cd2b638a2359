# Strict mode (prctl): a process under a filter cannot change to it.
from call import *


def strict():
    call("prctl", 22, 1, 0, 0, 0, label="PR_SET_SECCOMP")
    os.execv("/bin/true", ["true"])


show("then exec", in_child(strict))
