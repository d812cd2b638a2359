# Threads and processes as Python makes them go on working.
import concurrent.futures
import multiprocessing
import subprocess
from call import *

with concurrent.futures.ThreadPoolExecutor(4) as threads:
    show("threads", sum(threads.map(abs, [-1, -2, -3, -4])))
with multiprocessing.get_context("fork").Pool(2) as processes:
    show("processes", sum(processes.map(abs, [-1, -2])))
show("subprocess", subprocess.run(["true"]).returncode)
