// What must go on working beside the refusals: a thread, a spawned program. libc falls back to
// clone where clone3 is ENOSYS; EPERM would make it give up (moby 42680).
#include "call.h"
#include <pthread.h>
#include <spawn.h>
#include <sys/wait.h>

static void *thread(void *unused) { return unused; }

int main(void) {
    pthread_t id;
    int error = pthread_create(&id, NULL, thread, NULL);
    printf("pthread_create: %s\n", error ? strerrorname_np(error) : "ok");
    if (!error) pthread_join(id, NULL);
    pid_t pid;
    char *arguments[] = {"true", NULL};
    error = posix_spawnp(&pid, "true", NULL, NULL, arguments, environ);
    printf("posix_spawn: %s\n", error ? strerrorname_np(error) : "ok");
    int status = -1;
    if (!error) waitpid(pid, &status, 0);
    printf("status: %d\n", status);
}
