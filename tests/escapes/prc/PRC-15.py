# Files of /proc that change the process itself: they may, but nothing else may follow.
from call import *

for file, content in (
    ("coredump_filter", b"0"), ("clear_refs", b"1"), ("timerslack_ns", b"50000"),
    ("oom_score_adj", b"1000"), ("comm", b"other"),
):
    show(file, writing(f"/proc/self/{file}", content))
show("oom_score_adj, lower", writing("/proc/self/oom_score_adj", b"-1000"))
show("oom_score_adj of 1", writing("/proc/1/oom_score_adj", b"1000"))
