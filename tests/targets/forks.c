/* forks ROUNDS
 *
 * A child of fork has the same addresses as its parent: it frees the parent's
 * blocks and allocates at the same places. None of that is the parent's. */
#define _GNU_SOURCE
#include "truth.h"

#include <stdlib.h>
#include <sys/wait.h>

#define BLOCKS 50

static void *blocks[BLOCKS];

static void in_child(void) {
    for (int i = 0; i < BLOCKS; i++)
        free(blocks[i]);
    for (int i = 0; i < 3 * BLOCKS; i++)
        truth_sink = malloc(500);
    _exit(0);
}

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 1, calls = 0;
    for (long r = 0; r < rounds; r++) {
        for (int i = 0; i < BLOCKS; i++) {
            free(blocks[i]);
            blocks[i] = malloc(500);
            calls++;
        }
        pid_t child = fork();
        if (child == 0)
            in_child();
        waitpid(child, NULL, 0);
    }
    truth("calls", calls);
    truth("leaked", BLOCKS * 500);
    return 0;
}
