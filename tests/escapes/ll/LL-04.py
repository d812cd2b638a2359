# Orders to devices: Landlock knows them from version 5 on and only as a whole, so the filter has to
# refuse the bad ones.
import ctypes
import os

from call import call

TIOCSTI, TIOCLINUX, TIOCSETD, TIOCCONS, FIONREAD = 0x5412, 0x541C, 0x5423, 0x541D, 0x541B
byte = ctypes.create_string_buffer(b"\x0b\x00\x00\x00", 16)
master, own = os.openpty()
for what, device in ("null", os.open("/dev/null", os.O_RDWR)), ("an own terminal", own):
    for order in "TIOCSTI", "TIOCLINUX", "TIOCCONS", "FIONREAD":
        call("ioctl", device, globals()[order], byte, label=f"{order} on {what}")
        if order == "TIOCSTI":  # the kernel compares 32 bits
            call("ioctl", device, TIOCSTI | 1 << 32, byte, label=f"{order} + 2^32 on {what}")
