/* threads BATCHES ROUNDS
 *
 * Batches of 8 short-lived threads, thread-0 to thread-7. All threads of a batch are alive at the
 * same time, allocate, free what their neighbour allocated, and end. With 0
 * rounds only what the C library allocates for its threads remains. */
#define _GNU_SOURCE
#include "truth.h"

#include <pthread.h>
#include <stdlib.h>

#define BATCH 8
#define MAX_ROUNDS 4096

static pthread_barrier_t all_allocated, all_alive;
static void *blocks[BATCH][MAX_ROUNDS];
static long rounds;

static long size_of(long thread, long round) { return 10 + thread * 100 + round % 90; }

__attribute__((noinline)) static void allocate_in_thread(long thread) {
    for (long i = 0; i < rounds; i++)
        blocks[thread][i] = malloc(size_of(thread, i));
}

static void *run(void *argument) {
    long thread = (long)argument, neighbour = (thread + 1) % BATCH;
    char name[] = "thread-0";
    name[sizeof name - 2] += (char)thread;
    pthread_setname_np(pthread_self(), name);
    pthread_barrier_wait(&all_alive);
    allocate_in_thread(thread);
    pthread_barrier_wait(&all_allocated);
    /* The last block of each thread stays. */
    for (long i = 0; i + 1 < rounds; i++)
        free(blocks[neighbour][i]);
    return NULL;
}

int main(int argc, char **argv) {
    if (argc < 3)
        return 64;
    long batches = atol(argv[1]), leaked = 0;
    rounds = atol(argv[2]);
    pthread_t threads[BATCH];
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 256 * 1024);
    pthread_barrier_init(&all_alive, NULL, BATCH);
    pthread_barrier_init(&all_allocated, NULL, BATCH);

    for (long b = 0; b < batches; b++) {
        for (long t = 0; t < BATCH; t++)
            pthread_create(&threads[t], &attributes, run, (void *)t);
        for (long t = 0; t < BATCH; t++) {
            pthread_join(threads[t], NULL);
            leaked += rounds > 0 ? size_of(t, rounds - 1) : 0;
        }
    }
    truth("threads", batches * BATCH);
    truth("calls", batches * BATCH * rounds);
    truth("leaked", leaked);
    return 6;
}
