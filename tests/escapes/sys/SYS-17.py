# Calls that are the whole machine's.
from call import *

call("swapon", b"/workspace/none", 0)
call("swapoff", b"/workspace/none")
call("reboot", 0xFEE1DEAD, 672274793, 0, 0, label="reboot(CAD_OFF)")
call("acct", 0)
call("quotactl", 0x80000100, 0, 0, 0, label="quotactl(Q_SYNC)")
call("quotactl_fd", -1, 0x80000100, 0, 0)
call("nfsservctl", 0, 0, 0)
call("vhangup")
call("uselib", b"/none")
call("sysfs", 3)
call("ustat", 0, 0)
call("_sysctl", 0)
