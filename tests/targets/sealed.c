/* sealed ROUNDS seccomp|undumpable [wait]
 *
 * seccomp      may do nothing but read, write and exit once it allocates
 * undumpable   closes its /proc entries to all but root, as set-user-id
 *              programs do
 *
 * stdout counts what comes after one block for a start. */
#define _GNU_SOURCE
#include "truth.h"

#include <linux/seccomp.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

int main(int argc, char **argv) {
    if (argc < 3)
        return 64;
    long rounds = atol(argv[1]), calls = 0;
    /* Heap enough for what follows, so that no system call is needed. */
    free(malloc(10000));
    if (strcmp(argv[2], "seccomp") == 0)
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
    else
        prctl(PR_SET_DUMPABLE, 0);
    if (argc > 3)
        wait_for_go();
    for (long i = 0; i < rounds; i++) {
        void *block = calloc(1, 20 + i % 100);
        truth_sink = block;
        calls++;
        free(block);
    }
    truth("calls", calls);
    truth("leaked", 0);
    syscall(SYS_exit, 13);
}
