# Symbolic links in the project that lead outside of it.
from call import *

for link in sorted(os.listdir("/project")):
    if link.startswith("evil"):
        show(link, attempt(os.listdir, f"/project/{link}"))
