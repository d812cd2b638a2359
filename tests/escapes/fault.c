// fault NUMBER ERRNO [NUMBER ERRNO]... -- PROGRAM [ARGUMENT]...: runs a program on a kernel that
// refuses these system calls, as an old kernel or an outer filter does.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

int main(int count, char **words) {
    struct sock_filter program[256] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
    unsigned short length = 1;
    int at = 1;
    for (; at + 1 < count && strcmp(words[at], "--"); at += 2) {
        struct sock_filter is = BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)atoi(words[at]), 0, 1);
        struct sock_filter refuse = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)atoi(words[at + 1]));
        program[length++] = is;
        program[length++] = refuse;
    }
    struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    program[length++] = allow;
    struct sock_fprog filter = {length, program};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter)) {
        perror("fault");
        return 99;
    }
    execv(words[at + 1], words + at + 1);
    perror("fault");
    return 99;
}
