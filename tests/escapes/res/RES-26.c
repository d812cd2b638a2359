// Deaf to every signal; children that are stopped, that wait in a FIFO nobody opens, and that were
// made by vfork and never execute anything, so that their parent cannot be interrupted.
#include "call.h"
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>

int main(void) {
    for (int number = 1; number < 65; number++)
        signal(number, SIG_IGN);
    show("mkfifo", mkfifo("/workspace/fifo", 0600));
    if (fork() == 0)
        for (;;)
            raise(SIGSTOP);
    if (fork() == 0) {
        open("/workspace/fifo", O_RDONLY);
        _exit(0);
    }
    puts("waiting");
    fflush(stdout);
    if (vfork() == 0)
        for (;;)
            pause();
    puts("the child of vfork went on");
}
