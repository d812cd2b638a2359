// Shares the root and working directory with a new user namespace (CVE-2013-1858).
#include "call.h"
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>

int main(void) {
    show("unshare(CLONE_FS)", unshare(CLONE_FS));
    long pid = syscall(SYS_clone, CLONE_FS | CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0);
    if (pid == 0) _exit(0);
    show("clone(CLONE_FS|CLONE_NEWUSER)", pid);
}
