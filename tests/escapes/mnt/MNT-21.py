# Every way to change the project.
import mmap
from call import *

file = "/project/file"
show("read", reading(file))
show("create", attempt(os.open, "/project/made", os.O_CREAT | os.O_WRONLY))
show("open for writing", attempt(os.open, file, os.O_RDWR))
show("open O_TRUNC", attempt(os.open, file, os.O_WRONLY | os.O_TRUNC))
show("O_TMPFILE", attempt(os.open, "/project", os.O_TMPFILE | os.O_WRONLY))
show("unlink", attempt(os.unlink, file))
show("rmdir", attempt(os.rmdir, "/project/sub"))
show("mkdir", attempt(os.mkdir, "/project/d"))
show("link", attempt(os.link, file, "/project/l"))
show("link out", attempt(os.link, file, "/workspace/l"))
show("symlink", attempt(os.symlink, file, "/project/l"))
show("rename", attempt(os.rename, file, "/project/g"))
show("mknod", attempt(os.mknod, "/project/n"))
show("chmod", attempt(os.chmod, file, 0o777))
show("chown", attempt(os.chown, file, 1000, 1000))
show("utime", attempt(os.utime, file))
show("setxattr", attempt(os.setxattr, file, "user.x", b"1"))
show("truncate", attempt(os.truncate, file, 0))
descriptor = os.open(file, os.O_RDONLY)
show("map shared, writable", attempt(lambda: mmap.mmap(descriptor, 8, mmap.MAP_SHARED, 3)))
show("reopen", attempt(os.open, f"/proc/self/fd/{descriptor}", os.O_RDWR))
show("fchmod", attempt(os.fchmod, descriptor, 0o777))
