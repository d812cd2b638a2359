// calls: makes the system calls that its standard input lists, one on a line: a number and six arguments.
//
// An argument is a number; `b` a buffer, `r` the result of the call before, `pN` the N-th path, `z` null,
// `k` an address of the kernel's. Each call that blocks is interrupted. Nothing is judged: what matters is the
// host afterwards.
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

static const char *paths[] = {"/", "/proc/1/mem", "/proc/self/mem", "/project/watched/file", "/proc/sys/kernel/core_pattern",
    "/workspace/x", "/dev/ptmx", "/proc/1/ns/mnt", "/tmp/a/../../..", "/proc/self/fd/0", "/outputs", "/sys", "..", ""};
static char buffer[1 << 16];
static long last;

static void nothing(int number) { (void)number; }

static long argument(const char *word) {
    switch (word[0]) {
    case 'b': return (long)buffer;
    case 'r': return last;
    case 'p': return (long)paths[(unsigned long)atol(word + 1) % (sizeof paths / sizeof *paths)];
    case 'z': return 0;
    case 'k': return (long)0xffffffff81000000;
    default: return (long)strtoull(word, NULL, 0);
    }
}

int main(void) {
    static char line[1 << 12];
    struct sigaction interrupt = {.sa_handler = nothing};
    struct itimerval often = {{0, 5000}, {0, 5000}};
    sigaction(SIGALRM, &interrupt, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    // All of it first: a call may close the input.
    static char all[1 << 18];
    size_t length = fread(all, 1, sizeof all - 1, stdin);
    all[length] = 0;
    for (char *at = all, *next; *at; at = next) {
        next = strchr(at, '\n');
        next = next ? next + 1 : at + strlen(at);
        snprintf(line, sizeof line, "%.*s", (int)(next - at), at);
        char word[7][64] = {"39", "0", "0", "0", "0", "0", "0"};
        sscanf(line, "%63s %63s %63s %63s %63s %63s %63s", word[0], word[1], word[2], word[3], word[4], word[5], word[6]);
        last = syscall(argument(word[0]), argument(word[1]), argument(word[2]), argument(word[3]), argument(word[4]), argument(word[5]), argument(word[6]));
    }
    return 0;
}
