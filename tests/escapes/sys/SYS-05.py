# The keys of whoever started the sandbox: there is one in the session keyring of the starter.
from call import *

SESSION, USER_SESSION, SEARCH, READ = -3, -5, 10, 11
call("add_key", b"user", b"x", b"y", 1, SESSION)
call("request_key", b"user", b"secret-of-the-host", 0, 0)
for what, keyring in ("session", SESSION), ("user session", USER_SESSION):
    key = syscall("keyctl", SEARCH, keyring, b"user", b"secret-of-the-host", 0)
    show(f"search {what}", name(key))
    buffer = ctypes.create_string_buffer(64)
    call("keyctl", READ, key, buffer, 64, label=f"read {what}")
    if buffer.value:
        show("found", buffer.value.decode())
