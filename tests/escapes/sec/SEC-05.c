// A filter of one's own that answers more kindly: allow, trace, ask a supervisor.
#include "call.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static void try(const char *what, unsigned action, unsigned flags) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_unshare, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, action),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {4, code};
    fflush(stdout);
    if (fork() == 0) {
        alarm(1); // who asks a supervisor waits for its answer
        printf("%s: ", what);
        show("filter", syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program));
        printf("%s: ", what);
        show("unshare", unshare(CLONE_NEWUSER));
        _exit(0);
    }
    wait(NULL);
}

int main(void) {
    try("allow", SECCOMP_RET_ALLOW, 0);
    try("trace", SECCOMP_RET_TRACE, 0);
    try("ask", SECCOMP_RET_USER_NOTIF, SECCOMP_FILTER_FLAG_NEW_LISTENER);
}
