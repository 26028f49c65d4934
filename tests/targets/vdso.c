/* vdso SIGNALS
 *
 * Reads the clock until so many signals have come. Their handler allocates, as a rule while the
 * kernel's own shared object is at work. */
#include "truth.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

static volatile sig_atomic_t handled;
static void *volatile kept;

/* The loop below calls nothing but clock_gettime, which takes no lock of malloc's. */
static void handle(int signal) {
    (void)signal;
    kept = malloc(10);
    free(kept);
    handled++;
}

int main(int argc, char **argv) {
    if (argc < 2)
        return 64;
    long signals = atol(argv[1]);
    signal(SIGALRM, handle);
    struct itimerval often = {{0, 1000}, {0, 1000}};
    setitimer(ITIMER_REAL, &often, NULL);
    struct timespec now;
    while (handled < signals)
        clock_gettime(CLOCK_MONOTONIC, &now);
    struct itimerval never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &never, NULL);
    truth("at_least", signals);
    return 0;
}
