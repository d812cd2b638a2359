# The limits of one's own namespaces, and the settings of one's own network: read and write.
from call import *

show("max_user_namespaces", open("/proc/sys/user/max_user_namespaces").read().strip())
for tree in "user", "net":
    answers = set()
    for directory, _, files in os.walk(f"/proc/sys/{tree}"):
        for file in files:
            path = os.path.join(directory, file)
            try:
                content = open(path, "rb").read()
            except OSError:
                content = b"1"
            answers.add(writing(path, content))
    show(f"write {tree}", " ".join(sorted(answers)))
