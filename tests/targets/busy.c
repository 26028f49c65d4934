/* busy THREADS
 *
 * Threads that allocate, reallocate and free without a pause until the end of
 * stdin. Each keeps its blocks' contents and checks them, so that whoever
 * disturbs an allocator call is found out. */
#define _GNU_SOURCE
#include "truth.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#define SLOTS 64
#define MAX_THREADS 16

static atomic_int stop;

static void fill(unsigned char *block, size_t size, int slot) { memset(block, slot + 1, size); }

static void check(const unsigned char *block, size_t size, int slot) {
    for (size_t i = 0; i < size; i++)
        if (block[i] != slot + 1) {
            say("a block was overwritten\n");
            _exit(94);
        }
}

static void *run(void *argument) {
    unsigned char *blocks[SLOTS] = {0};
    size_t sizes[SLOTS] = {0};
    unsigned seed = (unsigned)(long)argument + 1;
    while (!atomic_load(&stop)) {
        int slot = (int)((seed = seed * 1103515245 + 12345) >> 16) % SLOTS;
        size_t size = 1 + (seed >> 8) % 500;
        check(blocks[slot], sizes[slot], slot);
        if (seed & 4) {
            free(blocks[slot]);
            blocks[slot] = malloc(size);
        } else {
            blocks[slot] = realloc(blocks[slot], size);
        }
        sizes[slot] = size;
        fill(blocks[slot], size, slot);
    }
    for (int slot = 0; slot < SLOTS; slot++)
        free(blocks[slot]);
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t threads[MAX_THREADS];
    int count = argc > 1 ? atoi(argv[1]) : 1;
    for (long i = 0; i < count; i++)
        pthread_create(&threads[i], NULL, run, (void *)i);
    wait_for_go();
    atomic_store(&stop, 1);
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    say("done\n");
    return 14;
}
