# Calls that are newer than this sandbox: listns (6.19), and numbers that nobody has yet.
from call import *

for number in 470, 471, 500, 600, 1023, 0x3FFFFFFF:
    call(number, -1, -1, -1, -1, label=str(number))
