# userfaultfd, the usual helper of use-after-free exploits.
from call import *

USER_MODE_ONLY = 1
call("userfaultfd", 0)
call("userfaultfd", USER_MODE_ONLY, label="userfaultfd(USER_MODE_ONLY)")
