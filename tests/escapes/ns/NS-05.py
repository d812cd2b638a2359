# A raw packet socket through a network namespace of one's own (CVE-2020-14386).
from call import *

call("unshare", 0x10000000 | 0x40000000, label="unshare(NEWUSER|NEWNET)")
call("socket", 17, 3, 0x0300, label="socket(AF_PACKET, SOCK_RAW)")
