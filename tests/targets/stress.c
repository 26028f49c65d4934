/* stress THREADS MILLISECONDS
 *
 * Threads that allocate, reallocate and free at full speed, for a time or until
 * the end of stdin, and count what they called. One of them says so now and
 * then. Nothing is left allocated but one block a thread, of KEPT bytes.
 *
 * All threads are there before the mark, where the program waits. They never
 * end: the C library would give back what its caches hold by calls of `free`
 * that nobody here counts. */
#define _GNU_SOURCE
#include "truth.h"

#include <pthread.h>
#include <stdlib.h>

#define MAX_THREADS 16
#define KEPT 12345
/* Calls between two looks at the clock. */
#define ROUNDS 64
/* Looks between two lines of the first thread. */
#define A_WHILE 256

struct worker {
    pthread_t thread;
    long number, allocations, frees, reallocs;
};

static pthread_barrier_t mark, done;
static long milliseconds;

static void *must(void *block) {
    if (block == NULL) {
        say("out of memory\n");
        _exit(99);
    }
    truth_sink = block;
    return block;
}

static void work(struct worker *w) {
    for (int j = 0; j < ROUNDS; j++) {
        void *block = must(malloc(16 + j));
        w->allocations++;
        if (j % 8 == 0) {
            block = must(realloc(block, 100 + j));
            w->reallocs++;
        }
        free(block);
        w->frees++;
    }
}

static void *run(void *argument) {
    struct worker *w = argument;
    pthread_barrier_wait(&mark);
    long long end = milliseconds_now() + milliseconds;
    for (long i = 0; milliseconds_now() < end && !input_has_ended(); i++) {
        work(w);
        if (w->number == 0 && i % A_WHILE == 0)
            say("working\n");
    }
    must(malloc(KEPT));
    w->allocations++;
    pthread_barrier_wait(&done);
    for (;;)
        pause();
}

int main(int argc, char **argv) {
    static struct worker workers[MAX_THREADS];
    struct worker sum = {0};
    if (argc < 3)
        return 64;
    int threads = atoi(argv[1]);
    milliseconds = atol(argv[2]);
    pthread_barrier_init(&mark, NULL, threads + 1);
    pthread_barrier_init(&done, NULL, threads + 1);
    for (int i = 0; i < threads; i++) {
        workers[i].number = i;
        pthread_create(&workers[i].thread, NULL, run, &workers[i]);
    }
    wait_for_go();
    pthread_barrier_wait(&mark);
    pthread_barrier_wait(&done);
    for (int i = 0; i < threads; i++) {
        sum.allocations += workers[i].allocations;
        sum.frees += workers[i].frees;
        sum.reallocs += workers[i].reallocs;
    }
    truth("allocations", sum.allocations);
    truth("frees", sum.frees);
    truth("reallocs", sum.reallocs);
    truth("kept", (long)threads * KEPT);
    _exit(12);
}
