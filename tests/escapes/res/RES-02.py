# The limit of processes is void for the host's root, in whatever namespace: so nobody is that. Threads
# count too.
import threading

from call import show

with open("/proc/self/uid_map") as table:
    inside, outside, count = table.read().split()
show("root of the host", outside == "0" or count != "1")
wait = threading.Event()
threads = 0
try:
    while threads < 300:
        threading.Thread(target=wait.wait, daemon=True).start()
        threads += 1
    show("threads", "no limit")
except RuntimeError:
    show("threads", f"{threads}, then refused")
