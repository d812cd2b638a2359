// The first instructions of the program: is the filter there already? A constructor runs before main.
#include "call.h"
#include <fcntl.h>

__attribute__((constructor)) static void first(void) {
    FILE *status = fopen("/proc/self/status", "r");
    char line[256];
    while (fgets(line, sizeof line, status))
        if (!strncmp(line, "Seccomp", 7) || !strncmp(line, "NoNewPrivs", 10)) fputs(line, stdout);
}

int main(void) { return 0; }
