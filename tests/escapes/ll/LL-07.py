# A domain binds the thread that enters it, and before version 8 no other: the payload starts with one
# thread, and those that it makes are born inside.
import os
import threading

from call import attempt, show

show("threads at the start", len(os.listdir("/proc/self/task")))
answers = []
threads = [threading.Thread(target=lambda: answers.append(attempt(os.kill, 1, 0))) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
show("pid 1 from each of 8 threads", " ".join(sorted(set(answers))))
show("as from the first", sorted(set(answers)) == [attempt(os.kill, 1, 0)])
