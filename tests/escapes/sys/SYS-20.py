# The name of the machine.
from call import *

call("sethostname", b"other", 5)
call("setdomainname", b"other", 5)
show("hostname", os.uname().nodename)
