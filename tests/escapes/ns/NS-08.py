# nf_tables through nested user and network namespaces (CVE-2024-1086, CVE-2023-32233).
from call import *

call("unshare", 0x10000000 | 0x40000000, label="unshare(NEWUSER|NEWNET)")
call("socket", 16, 3, 12, label="socket(NETLINK_NETFILTER)")
