// Changes what a pointer points to while the call is under way: the flags of clone3 by a second thread.
#include "call.h"
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>

static volatile unsigned long long arguments[11];
static volatile int done;

static void *flip(void *unused) {
    while (!done) arguments[0] ^= CLONE_NEWUSER;
    return unused;
}

int main(void) {
    pthread_t thread;
    signal(SIGCHLD, SIG_IGN); // no zombies, should it succeed
    arguments[4] = SIGCHLD;
    pthread_create(&thread, NULL, flip, NULL);
    long others = 0;
    for (int i = 0; i < 5000; i++) {
        long result = syscall(SYS_clone3, arguments, sizeof arguments);
        if (result == 0) _exit(0);
        others += result != -1 || errno != ENOSYS;
    }
    done = 1;
    pthread_join(thread, NULL);
    printf("answers other than ENOSYS: %ld\n", others);
}
