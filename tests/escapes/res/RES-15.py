# A directory tree so deep, with names so long, that whoever removes it by walking does not come back.
import os

from call import show

NAME = "d" * 255
os.mkdir("/workspace/tree")
depth = 1
while depth < 20_000:
    # The tree is hung below a hundred new directories: nothing here has to walk 20,000.
    os.mkdir("/workspace/new")
    os.chdir("/workspace/new")
    for _ in range(98):
        os.mkdir(NAME)
        os.chdir(NAME)
    os.rename("/workspace/tree", NAME)
    os.rename("/workspace/new", "/workspace/tree")
    depth += 99
levels = 0
os.chdir("/workspace/tree")
while os.path.isdir(NAME):
    os.chdir(NAME)
    levels += 1
show("deeper than 20,000", levels >= 20_000)
