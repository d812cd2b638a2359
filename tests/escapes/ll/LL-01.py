# Landlock knows truncation from version 3 (Linux 6.2) on; on an older kernel the mount must refuse.
import os

from call import attempt, show

for path in "/project/victim", "/project/link":
    show(f"truncate {path}", attempt(os.truncate, path, 0))
    show(f"open {path}", attempt(os.open, path, os.O_WRONLY | os.O_TRUNC))
with open("/workspace/own", "w") as file:
    file.write("own")
show("truncate an own file", attempt(os.truncate, "/workspace/own", 0))
