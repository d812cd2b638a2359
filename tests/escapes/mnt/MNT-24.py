# The Nix daemon, which would build and fetch outside of the sandbox, and its database.
import socket
from call import *

daemon = "/nix/var/nix/daemon-socket/socket"
show("daemon", attempt(socket.socket(socket.AF_UNIX).connect, daemon))
show("database", reading("/nix/var/nix/db/db.sqlite"))
