/* worker [ROUNDS_A_LINE] [paced]
 *
 * Allocates and frees until told to stop by a byte, or the end, of stdin; a
 * line of stdout after each ROUNDS_A_LINE rounds tells that it is still there.
 * It keeps one block of every hundred. `paced`: each byte asks for one line's
 * rounds, and only the end of stdin stops it. */
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

static int told_to_go(void) {
    char byte;
    return read(0, &byte, 1) == 1;
}

int main(int argc, char **argv) {
    long rounds_a_line = argc > 1 ? atol(argv[1]) : 1000, rounds = 0;
    truth("pid", getpid());
    int paced = argc > 2;
    if (paced)
        say("ready\n");
    else
        wait_for_go();
    while (paced ? told_to_go() : !told_to_stop()) {
        for (long i = 0; i < rounds_a_line; i++)
            work_a_round(rounds++);
        say("working\n");
    }
    truth("calls", rounds);
    say("done\n");
    return 11;
}
