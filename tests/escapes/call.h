// What the C payloads share: every answer by its name.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

// One line of what was observed: `ok`, or the name of the errno where `result` is -1.
static inline void show(const char *what, long result) {
    printf("%s: %s\n", what, result == -1 ? strerrorname_np(errno) : "ok");
    fflush(stdout);
}
