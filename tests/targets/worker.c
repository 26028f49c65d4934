/* worker [ROUNDS_A_LINE]
 *
 * Allocates and frees until told to stop by a byte, or the end, of stdin; a
 * line of stdout after each ROUNDS_A_LINE rounds tells that it is still there.
 * It keeps one block of every hundred. */
#define _GNU_SOURCE
#include "truth.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>

__attribute__((noinline)) static void work_a_round(long i) {
    void *block = malloc(24 + i % 200);
    truth_sink = block;
    if (i % 100 != 0)
        free(block);
}

static int told_to_stop(void) {
    struct pollfd input = {.fd = 0, .events = POLLIN};
    return poll(&input, 1, 0) != 0;
}

int main(int argc, char **argv) {
    long rounds_a_line = argc > 1 ? atol(argv[1]) : 1000, rounds = 0;
    truth("pid", getpid());
    wait_for_go();
    while (!told_to_stop()) {
        for (long i = 0; i < rounds_a_line; i++)
            work_a_round(rounds++);
        say("working\n");
    }
    truth("calls", rounds);
    say("done\n");
    return 11;
}
