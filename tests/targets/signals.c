/* signals raised|storm|interrupted COUNT
 *
 * raised       COUNT signals raised by the program itself; the handler runs on
 *              a stack of its own and allocates.
 * storm        a timer fires every 100 us until its handler has allocated
 *              COUNT times; the main thread allocates as well, with the signal
 *              blocked around each call, so no allocator is ever re-entered.
 * interrupted  the same timer, its handler allocates nothing, and the main
 *              thread's COUNT allocations are open to interruption anywhere. */
#define _GNU_SOURCE
#include "truth.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/time.h>

static volatile sig_atomic_t handled;
static long wanted;
static long main_calls, main_live;

__attribute__((noinline)) static void allocate_in_handler(long i) {
    void *block = malloc(200 + i % 7);
    truth_sink = block;
    free(block);
}

static void on_raised(int signal) {
    (void)signal;
    allocate_in_handler(handled);
    handled++;
}

static void set_timer(long microseconds) {
    struct itimerval timer = {.it_interval = {0, microseconds}, .it_value = {0, microseconds}};
    setitimer(ITIMER_REAL, &timer, NULL);
}

static void on_storm(int signal) {
    (void)signal;
    if (handled >= wanted)
        return;
    allocate_in_handler(handled);
    if (++handled == wanted)
        set_timer(0);
}

static void on_interruption(int signal) {
    (void)signal;
    handled++;
}

static void handle(int signal, void (*handler)(int), int flags) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    sigaction(signal, &action, NULL);
}

static void raise_all(void) {
    static char stack[65536];
    stack_t alternative = {.ss_sp = stack, .ss_size = sizeof stack};
    sigaltstack(&alternative, NULL);
    handle(SIGUSR1, on_raised, SA_ONSTACK);
    for (long i = 0; i < wanted; i++)
        raise(SIGUSR1);
}

static void allocate_in_main(long i) {
    void *block = malloc(300 + i % 11);
    truth_sink = block;
    main_calls++;
    if (i % 10 == 0)
        main_live += 300 + i % 11;
    else
        free(block);
}

/* The main thread allocates as often as its handler does. */
static void weather_storm(void) {
    sigset_t alarm, before;
    sigemptyset(&alarm);
    sigaddset(&alarm, SIGALRM);
    handle(SIGALRM, on_storm, SA_RESTART);
    set_timer(100);
    for (long i = 0; i < wanted; i++) {
        sigprocmask(SIG_BLOCK, &alarm, &before);
        allocate_in_main(i);
        sigprocmask(SIG_SETMASK, &before, NULL);
    }
    sigprocmask(SIG_BLOCK, &alarm, &before);
    while (handled < wanted)
        sigsuspend(&before);
    sigprocmask(SIG_SETMASK, &before, NULL);
}

static void allocate_interrupted(void) {
    handle(SIGALRM, on_interruption, SA_RESTART);
    set_timer(100);
    for (long i = 0; i < wanted; i++)
        allocate_in_main(i);
    set_timer(0);
}

int main(int argc, char **argv) {
    if (argc < 3)
        return 64;
    wanted = atol(argv[2]);
    long by_handler = wanted;
    if (strcmp(argv[1], "raised") == 0) {
        raise_all();
    } else if (strcmp(argv[1], "storm") == 0) {
        weather_storm();
    } else {
        allocate_interrupted();
        by_handler = 0;
    }
    truth("handler_calls", by_handler);
    truth("calls", main_calls + by_handler);
    truth("leaked", main_live);
    return 5;
}
