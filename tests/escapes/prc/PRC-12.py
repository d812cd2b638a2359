# sysfs.
from call import *

show("/sys", attempt(os.listdir, "/sys"))
os.makedirs("/tmp/m", exist_ok=True)
call("mount", b"x", b"/tmp/m", b"sysfs", 0, 0)
