# Without /proc, as the settings may ask: nothing of it is there, and programs still start.
from call import *

show("/proc", " ".join(os.listdir("/proc")) or "empty")
show("processors", os.cpu_count() > 0)
