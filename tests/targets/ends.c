/* ends BLOCKS return|_exit|abort|kill|segv|exec|closed
 *
 * Allocates BLOCKS blocks, keeps them, and ends as told: by status 7 from
 * main, by _exit(8), by abort, by SIGKILL, by a fault, by executing itself
 * anew (which then allocates 5 blocks in another function and returns 9), or
 * by status 10 after every descriptor has been closed. */
#define _GNU_SOURCE
#include "truth.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>

__attribute__((noinline)) static void keep_block(long i) { truth_sink = malloc(40 + i % 10); }

__attribute__((noinline)) static void keep_block_after_exec(void) { truth_sink = malloc(30); }

static long keep(long blocks) {
    long bytes = 0;
    for (long i = 0; i < blocks; i++) {
        keep_block(i);
        bytes += 40 + i % 10;
    }
    return bytes;
}

int main(int argc, char **argv) {
    if (argc < 3)
        return 64;
    const char *end = argv[2];
    if (strcmp(end, "executed") == 0) {
        for (int i = 0; i < 5; i++)
            keep_block_after_exec();
        say("second program\n");
        return 9;
    }
    long blocks = atol(argv[1]), bytes = keep(blocks);
    truth("calls", blocks);
    truth("leaked", bytes);
    if (strcmp(end, "_exit") == 0)
        _exit(8);
    if (strcmp(end, "abort") == 0)
        abort();
    if (strcmp(end, "kill") == 0)
        kill(getpid(), SIGKILL);
    if (strcmp(end, "segv") == 0)
        *(volatile char *)8 = 1;
    if (strcmp(end, "exec") == 0)
        execl("/proc/self/exe", "ends", argv[1], "executed", (char *)NULL);
    if (strcmp(end, "closed") == 0) {
        close_range(0, ~0U, 0);
        return 10;
    }
    return 7;
}
