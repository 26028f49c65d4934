/* handover ROUNDS
 *
 * Two threads realloc blocks to and fro, two others allocate and free in the
 * same size classes, so that an address freed by one is at once another's.
 * Whoever reports a free too late takes the new owner's block for freed. */
#define _GNU_SOURCE
#include "truth.h"

#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>

static long rounds;
static pthread_barrier_t start;

static void *reallocate(void *argument) {
    long *calls = argument;
    pthread_barrier_wait(&start);
    void *block = malloc(40);
    ++*calls;
    for (long i = 0; i < rounds; i++) {
        block = realloc(block, i % 2 ? 40 : 2000);
        truth_sink = block;
        ++*calls;
    }
    free(block);
    return NULL;
}

static void *allocate(void *argument) {
    long *calls = argument;
    pthread_barrier_wait(&start);
    for (long i = 0; i < rounds; i++) {
        void *small = malloc(40), *large = malloc(2000);
        *calls += 2;
        free(small);
        free(large);
    }
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t threads[4];
    long calls[4] = {0};
    rounds = argc > 1 ? atol(argv[1]) : 0;
    /* One arena; run it with GLIBC_TUNABLES=glibc.malloc.tcache_count=0, and
     * every address is everybody's. */
    mallopt(M_ARENA_MAX, 1);
    pthread_barrier_init(&start, NULL, 4);
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, i < 2 ? reallocate : allocate, &calls[i]);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    truth("calls", calls[0] + calls[1] + calls[2] + calls[3]);
    truth("leaked", 0);
    return 0;
}
