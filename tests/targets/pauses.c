/* pauses
 *
 * Allocates and frees in three steps, each when a byte of stdin comes, and tells
 * when a step is done. A tracer pauses during the second. */
#define _GNU_SOURCE
#include "truth.h"

#include <stdlib.h>

static void *kept, *freed, *moved, *unseen_kept, *unseen_freed;

static void before_the_pause(void) {
    kept = malloc(1000);
    freed = malloc(2000);
    moved = malloc(3000);
}

static void in_the_pause(void) {
    free(freed);
    moved = realloc(moved, 300000);
    unseen_kept = malloc(5000);
    unseen_freed = malloc(6000);
}

static void after_the_pause(void) {
    free(unseen_freed);
    truth_sink = malloc(7000);
}

int main(void) {
    void (*const steps[])(void) = {before_the_pause, in_the_pause, after_the_pause};
    say("ready\n");
    for (int step = 0; step < 3; step++) {
        char byte;
        if (read(0, &byte, 1) != 1)
            return 1;
        steps[step]();
        say("done\n");
    }
    /* Until there is no more input. */
    char byte;
    while (read(0, &byte, 1) > 0)
        ;
    return kept && moved && unseen_kept ? 0 : 2;
}
