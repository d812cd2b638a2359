// A false /proc, into which an engine would write its settings (CVE-2019-19921, CVE-2025-52881).
#include "call.h"
#include <linux/magic.h>
#include <sys/vfs.h>

int main(void) {
    const char *places[] = {"/proc", "/proc/self", "/proc/sys", "/proc/sys/user"};
    for (int i = 0; i < 4; i++) {
        struct statfs fs;
        if (statfs(places[i], &fs)) show(places[i], -1);
        else printf("%s: %s\n", places[i], fs.f_type == PROC_SUPER_MAGIC ? "procfs" : "something else");
    }
}
