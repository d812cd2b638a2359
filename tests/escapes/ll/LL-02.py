# Renames and links between directories: version 1 refuses all of them, later ones those that would
# give a file more rights.
import os

from call import attempt, show

os.mkdir("/workspace/a")
os.mkdir("/workspace/b")
open("/workspace/a/file", "w").close()
show("rename between own directories", attempt(os.rename, "/workspace/a/file", "/workspace/b/file"))
if os.path.exists("/workspace/a/file"):
    os.rename("/workspace/a/file", "/workspace/a/same")  # within one directory it always works
open("/workspace/own", "w").close()
for what, call, source, target in [
    ("rename to /tmp", os.rename, "/workspace/own", "/tmp/own"),
    ("rename into the project", os.rename, "/workspace/own", "/project/own"),
    ("rename out of the project", os.rename, "/project/victim", "/workspace/victim"),
    ("link out of the project", os.link, "/project/victim", "/workspace/victim"),
    ("link a program", os.link, "/etc/passwd", "/workspace/passwd"),
    ("rename within the project", os.rename, "/project/victim", "/project/directory/victim"),
]:
    show(what, attempt(call, source, target))
