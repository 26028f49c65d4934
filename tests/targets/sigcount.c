/* sigcount
 *
 * Says "ready", says "got SIGNAL" for each SIGINT or SIGTERM, and, once a line
 * or the end of stdin came, tells how many there were. */
#define _GNU_SOURCE
#include "truth.h"

#include <signal.h>
#include <stdlib.h>

static volatile sig_atomic_t interrupts, terminations;

static void on_signal(int signal) {
    if (signal == SIGINT)
        interrupts++;
    else
        terminations++;
    say(signal == SIGINT ? "got SIGINT\n" : "got SIGTERM\n");
}

int main(void) {
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    for (int i = 0; i < 10; i++)
        truth_sink = malloc(1000);
    wait_for_go();
    truth("interrupts", interrupts);
    truth("terminations", terminations);
    return 12;
}
