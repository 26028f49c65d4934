/* counts THREADS ROUNDS all|hooked [wait]
 *
 * Calls every allocation function in every way that matters and keeps its own
 * books. `hooked` leaves out what heaptrack's recorder does not see. With
 * `wait` the program stops at a mark, ready to be attached to; blocks from
 * before the mark are freed, reallocated and kept after it.
 *
 * One thread: the main thread does the work and stdout tells the peak as well.
 * More: they are all created before the mark. With 0 rounds nothing at all is
 * allocated by this file, so what a trace shows then is the C library's own. */
#define _GNU_SOURCE
#include "truth.h"

#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

#define MAX_THREADS 16
#define OLD_BLOCKS 64
#define OLD_SIZE 48

/* `total_*`: since the program's start. `mark_*`: since the mark, as somebody
 * sees it who does not know any older block. */
struct books {
    long total_calls, total_live, total_peak;
    long mark_calls, mark_live, mark_peak;
};

struct worker {
    struct books books;
    pthread_t thread;
    long rounds;
    int all;
};

static pthread_barrier_t mark;
static volatile size_t huge = PTRDIFF_MAX; /* no allocator can serve it */

#ifdef __GLIBC__
/* A symbol that programs linked long ago still use. */
extern void cfree_of_old(void *block);
__asm__(".symver cfree_of_old,cfree@GLIBC_2.2.5");
#endif

static void took(struct books *b, long size) {
    b->total_calls++;
    b->mark_calls++;
    b->total_live += size;
    b->mark_live += size;
    if (b->total_live > b->total_peak)
        b->total_peak = b->total_live;
    if (b->mark_live > b->mark_peak)
        b->mark_peak = b->mark_live;
}

static void gave(struct books *b, long size) {
    b->total_live -= size;
    b->mark_live -= size;
}

static void gave_old(struct books *b, long size) { b->total_live -= size; }

static void *must(void *block) {
    if (block == NULL) {
        say("out of memory\n");
        _exit(99);
    }
    truth_sink = block;
    return block;
}

static void must_fail(int failed) {
    if (!failed) {
        say("a call that has to fail did not\n");
        _exit(98);
    }
}

static void plain(struct books *b, long i) {
    long size = 1 + i % 97;
    void *block = must(malloc(size));
    took(b, size);
    free(block);
    gave(b, size);

    block = must(malloc(0));
    took(b, 0);
    free(block);
    free(NULL);

    must_fail(malloc(huge) == NULL);
}

static void cleared(struct books *b, long i) {
    long size = 5 + i % 13;
    void *block = must(calloc(3, size));
    took(b, 3 * size);
    must_fail(calloc(huge, 16) == NULL);
    must_fail(calloc(2, huge) == NULL);
    free(block);
    gave(b, 3 * size);

    /* Some are cleared by hand, some by memset, some are mapped and thus clear. */
    size = i % 50 == 0 ? 150000 + i : 20 + i * 7 % 2000;
    block = must(calloc(2, size));
    took(b, 2 * size);
    free(block);
    gave(b, 2 * size);
}

static void reallocated(struct books *b, long i) {
    /* Every 50th block is so large that the C library maps it by itself. */
    long small = 20 + i % 31, large = i % 50 == 0 ? 300000 + i : 3000 + i % 100;
    void *block = must(realloc(NULL, small));
    took(b, small);
    block = must(realloc(block, large)); /* grows */
    gave(b, small);
    took(b, large);
    must_fail(realloc(block, huge) == NULL); /* block lives on */
    block = must(realloc(block, small + 1)); /* shrinks */
    gave(b, large);
    took(b, small + 1);
    block = must(realloc(block, small + 1)); /* in place */
    gave(b, small + 1);
    took(b, small + 1);
    free(block);
    gave(b, small + 1);
}

static void reallocated_to_zero(struct books *b) {
    void *block = must(malloc(77));
    took(b, 77);
#ifdef __GLIBC__ /* frees */
    must_fail(realloc(block, 0) == NULL);
    gave(b, 77);
#else /* musl: makes a block of no bytes */
    block = must(realloc(block, 0));
    gave(b, 77);
    took(b, 0);
    free(block);
#endif
}

static void reallocated_arrays(struct books *b, long i) {
    long size = 8 + i % 8;
    void *block = must(reallocarray(NULL, 4, size));
    took(b, 4 * size);
    must_fail(reallocarray(block, huge, 16) == NULL);
    block = must(reallocarray(block, 40, size));
    gave(b, 4 * size);
    took(b, 40 * size);
    free(block);
    gave(b, 40 * size);
}

static void aligned_hooked(struct books *b, long i) {
    long size = 65 + i % 50;
    void *block = NULL;
    must_fail(posix_memalign(&block, 64, size) != 0 ? 0 : 1);
    truth_sink = block;
    took(b, size);
    free(block);
    gave(b, size);
    must_fail(posix_memalign(&block, 3, size) == EINVAL);
    must_fail(posix_memalign(&block, 64, huge) == ENOMEM);

    block = must(aligned_alloc(128, 256));
    took(b, 256);
    free(block);
    gave(b, 256);

    block = must(valloc(size));
    took(b, size);
    free(block);
    gave(b, size);
}

static void aligned_unhooked(struct books *b, long i) {
    long size = 100 + i % 50;
    void *block = must(memalign(256, size));
    took(b, size);
    must_fail(memalign(256, huge) == NULL);
#ifdef __GLIBC__
    cfree_of_old(block);
    gave(b, size);

    block = must(pvalloc(size));
    took(b, size);
#endif
    free(block);
    gave(b, size);
}

static void through_the_library(struct books *b) {
    char *copy = must(strdup("twenty-two characters"));
    took(b, 22);
    free(copy);
    gave(b, 22);
}

static void leaked(struct books *b, long i) {
    must(malloc(33 + i % 3));
    took(b, 33 + i % 3);
    if (i % 20 == 0) {
        must(calloc(1, 7));
        took(b, 7);
    }
}

static void work(struct worker *w) {
    struct books *b = &w->books;
    for (long i = 0; i < w->rounds; i++) {
        plain(b, i);
        cleared(b, i);
        reallocated(b, i);
        aligned_hooked(b, i);
        through_the_library(b);
        if (w->all) {
            reallocated_to_zero(b);
            reallocated_arrays(b, i);
            aligned_unhooked(b, i);
        }
        if (i % 10 == 0)
            leaked(b, i);
    }
}

static void *run(void *argument) {
    pthread_barrier_wait(&mark);
    work(argument);
    return NULL;
}

/* A quarter stays, a quarter is reallocated and stays, the rest is freed. */
static void finish_old(struct books *b, void **old) {
    for (int i = 0; i < OLD_BLOCKS; i++) {
        if (i % 4 == 0)
            continue;
        if (i % 4 == 1) {
            must(realloc(old[i], OLD_SIZE + i));
            gave_old(b, OLD_SIZE);
            took(b, OLD_SIZE + i);
        } else {
            free(old[i]);
            gave_old(b, OLD_SIZE);
        }
    }
}

static void print(struct worker *workers, int threads) {
    struct books sum = {0};
    for (int i = 0; i < threads; i++) {
        struct books *b = &workers[i].books;
        sum.total_calls += b->total_calls;
        sum.total_live += b->total_live;
        sum.mark_calls += b->mark_calls;
        sum.mark_live += b->mark_live;
    }
    truth("total_calls", sum.total_calls);
    truth("total_leaked", sum.total_live);
    truth("mark_calls", sum.mark_calls);
    truth("mark_leaked", sum.mark_live);
    if (threads == 1) {
        truth("total_peak", workers[0].books.total_peak);
        truth("mark_peak", workers[0].books.mark_peak);
    }
}

int main(int argc, char **argv) {
    static struct worker workers[MAX_THREADS];
    static void *old[OLD_BLOCKS];
    if (argc < 4)
        return 64;
    int threads = atoi(argv[1]);
    long rounds = atol(argv[2]);
    struct books *first = &workers[0].books;

    for (int i = 0; i < threads; i++) {
        workers[i].rounds = rounds;
        workers[i].all = strcmp(argv[3], "all") == 0;
    }
    for (int i = 0; rounds > 0 && i < OLD_BLOCKS; i++) {
        old[i] = must(malloc(OLD_SIZE));
        took(first, OLD_SIZE);
    }
    pthread_barrier_init(&mark, NULL, threads + 1);
    for (int i = 0; threads > 1 && i < threads; i++)
        pthread_create(&workers[i].thread, NULL, run, &workers[i]);

    if (argc > 4)
        wait_for_go();
    first->mark_calls = first->mark_live = first->mark_peak = 0;
    if (rounds > 0)
        finish_old(first, old);
    if (threads == 1) {
        work(&workers[0]);
    } else {
        pthread_barrier_wait(&mark);
        for (int i = 0; i < threads; i++)
            pthread_join(workers[i].thread, NULL);
    }
    print(workers, threads);
    return 0;
}
