/* chains ROUNDS
 *
 * 64 threads of two kinds whose call chains have nothing in common, all on one
 * processor, so that they are preempted in the middle of things. */
#define _GNU_SOURCE
#include "truth.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

enum { THREADS = 64 };

static long rounds;

#define CHAIN(kind)                                                                                \
    __attribute__((noinline)) static void kind##_leaf(void) {                                      \
        void *block = malloc(32);                                                                  \
        truth_sink = block;                                                                        \
        free(block);                                                                               \
        truth_sink = NULL;                                                                         \
    }                                                                                              \
    __attribute__((noinline)) static void kind##_descend(int depth) {                              \
        if (depth > 0)                                                                             \
            kind##_descend(depth - 1);                                                             \
        else                                                                                       \
            kind##_leaf();                                                                         \
        truth_sink = NULL;                                                                         \
    }                                                                                              \
    static void *kind##_run(void *unused) {                                                        \
        (void)unused;                                                                              \
        for (long i = 0; i < rounds; i++)                                                          \
            kind##_descend(10 + i % 10);                                                           \
        return NULL;                                                                               \
    }

CHAIN(left)
CHAIN(right)

int main(int argc, char **argv) {
    pthread_t threads[THREADS];
    rounds = argc > 1 ? atol(argv[1]) : 0;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    sched_setaffinity(0, sizeof one, &one);
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, i % 2 ? left_run : right_run, NULL);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    truth("calls_each", THREADS / 2 * rounds);
    return 0;
}
