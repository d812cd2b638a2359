# Core scheduling: whom the run shares its cores with is not for it to say.
from call import *

GET, CREATE, SHARE_TO = 0, 1, 2
call("prctl", 62, CREATE, 0, 0, 0, label="PR_SCHED_CORE_CREATE")
call("prctl", 62, SHARE_TO, 1, 0, 0, label="PR_SCHED_CORE_SHARE_TO 1")
