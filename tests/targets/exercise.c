/* exercise THREADS MILLISECONDS SEED
 *
 * Threads that call every allocation function at random, on blocks of their own
 * and on blocks that others have allocated, and keep a ledger: successful calls
 * by function, and bytes that are live at the end by the function that allocated
 * them. Each block is filled, and looked at before it goes.
 *
 * All threads are there before the mark, where the program waits, and none
 * ends: what the C library gives back at a thread's end is nobody's call. */
#define _GNU_SOURCE
#include "truth.h"

#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>

#define MAX_THREADS 16
#define SLOTS 512
#define LARGEST 3000

#define FUNCTIONS(X)                                                                               \
    X(by_malloc, malloc(size))                                                                     \
    X(by_calloc, calloc(1, size))                                                                  \
    X(by_posix_memalign, posix(size))                                                              \
    X(by_aligned_alloc, aligned_alloc(64, size))                                                   \
    X(by_memalign, memalign(128, size))                                                            \
    X(by_valloc, valloc(size))                                                                     \
    X(by_pvalloc, pvalloc(size))                                                                   \
    X(by_realloc_of_null, realloc(NULL, size))                                                     \
    X(by_strdup, copy(size))

enum {
#define NUMBER(name, call) number_##name,
    FUNCTIONS(NUMBER) number_by_realloc,
    number_by_reallocarray,
    FUNCTION_COUNT
};

/* A block on its own stack of words: who allocated it and how large it is. */
struct block {
    unsigned char *bytes;
    uint32_t size;
    uint8_t function, fill;
};

struct ledger {
    pthread_t thread;
    uint64_t state;
    long calls[FUNCTION_COUNT], frees;
    struct block own[SLOTS];
};

/* Blocks that pass from thread to thread. */
static struct {
    atomic_flag taken;
    struct block block;
} shared[SLOTS];

static pthread_barrier_t mark, done;
static long milliseconds;

static void *posix(size_t size) {
    void *block = NULL;
    return posix_memalign(&block, 32, size) == 0 ? block : NULL;
}

static void *copy(size_t size) {
    char text[LARGEST + 1];
    memset(text, 'x', size - 1);
    text[size - 1] = 0;
    return strdup(text);
}

#define DEFINE(name, call)                                                                         \
    __attribute__((noinline)) static void *name(size_t size) {                                     \
        void *block = call;                                                                        \
        __asm__ volatile("" : "+r"(block));                                                        \
        return block;                                                                              \
    }
FUNCTIONS(DEFINE)

__attribute__((noinline)) static void *by_realloc(void *old, size_t size) {
    void *block = realloc(old, size);
    __asm__ volatile("" : "+r"(block));
    return block;
}

__attribute__((noinline)) static void *by_reallocarray(void *old, size_t size) {
    void *block = reallocarray(old, 1, size);
    __asm__ volatile("" : "+r"(block));
    return block;
}

static void *(*const allocators[])(size_t) = {
#define POINTER(name, call) name,
    FUNCTIONS(POINTER)};

static const char *const names[] = {
#define NAME(name, call) #name,
    FUNCTIONS(NAME) "by_realloc", "by_reallocarray"};

static uint64_t next(struct ledger *l) {
    l->state ^= l->state << 13;
    l->state ^= l->state >> 7;
    l->state ^= l->state << 17;
    return l->state;
}

static void fail(const char *what) {
    say(what);
    _exit(94);
}

/* Sizes of all orders, most of them small. */
static size_t some_size(struct ledger *l) {
    uint64_t bits = next(l);
    return 1 + bits % (bits & 0x10000 ? 64 : LARGEST);
}

static void fill(struct block *b, struct ledger *l) {
    if (b->bytes == NULL)
        fail("out of memory\n");
    b->fill = (uint8_t)next(l);
    memset(b->bytes, b->fill, b->size);
}

static void check(const struct block *b, size_t size) {
    for (size_t i = 0; i < size; i++)
        if (b->bytes[i] != b->fill)
            fail("a block was overwritten\n");
}

static void allocate(struct ledger *l, struct block *b) {
    b->function = (uint8_t)(next(l) % (sizeof allocators / sizeof *allocators));
    b->size = (uint32_t)some_size(l);
    b->bytes = allocators[b->function](b->size);
    l->calls[b->function]++;
    fill(b, l);
}

static void reallocate(struct ledger *l, struct block *b) {
    size_t old = b->size, size = some_size(l);
    int array = next(l) & 1;
    check(b, old);
    b->bytes = array ? by_reallocarray(b->bytes, size) : by_realloc(b->bytes, size);
    b->function = array ? number_by_reallocarray : number_by_realloc;
    l->calls[b->function]++;
    if (b->bytes == NULL)
        fail("out of memory\n");
    check(b, old < size ? old : size);
    b->size = (uint32_t)size;
    fill(b, l);
}

static void release(struct ledger *l, struct block *b) {
    check(b, b->size);
    free(b->bytes);
    l->frees++;
    b->bytes = NULL;
}

/* Changes a block for one that another thread may have left. */
static void exchange(struct ledger *l, struct block *b) {
    size_t slot = next(l) % SLOTS;
    if (atomic_flag_test_and_set(&shared[slot].taken))
        return;
    struct block theirs = shared[slot].block;
    shared[slot].block = *b;
    *b = theirs;
    atomic_flag_clear(&shared[slot].taken);
}

static void work(struct ledger *l) {
    for (int i = 0; i < 100; i++) {
        struct block *b = &l->own[next(l) % SLOTS];
        if (b->bytes == NULL)
            allocate(l, b);
        else if (next(l) % 4 == 0)
            reallocate(l, b);
        else
            release(l, b);
        if (next(l) % 3 == 0)
            exchange(l, b);
    }
}

static void *run(void *argument) {
    struct ledger *l = argument;
    pthread_barrier_wait(&mark);
    long long end = milliseconds_now() + milliseconds;
    while (milliseconds_now() < end && !input_has_ended())
        work(l);
    pthread_barrier_wait(&done);
    for (;;)
        pause();
}

static void tell(const char *what, const char *name, long number) {
    char key[64];
    snprintf(key, sizeof key, "%s_%s", what, name);
    truth(key, number);
}

static void tell_all(struct ledger *ledgers, int threads) {
    long calls[FUNCTION_COUNT] = {0}, live[FUNCTION_COUNT] = {0}, frees = 0;
    for (int i = 0; i < SLOTS; i++)
        if (shared[i].block.bytes)
            live[shared[i].block.function] += shared[i].block.size;
    for (int t = 0; t < threads; t++) {
        frees += ledgers[t].frees;
        for (int f = 0; f < FUNCTION_COUNT; f++)
            calls[f] += ledgers[t].calls[f];
        for (int i = 0; i < SLOTS; i++)
            if (ledgers[t].own[i].bytes)
                live[ledgers[t].own[i].function] += ledgers[t].own[i].size;
    }
    for (int f = 0; f < FUNCTION_COUNT; f++) {
        tell("calls", names[f], calls[f]);
        tell("live", names[f], live[f]);
    }
    truth("frees", frees);
}

int main(int argc, char **argv) {
    static struct ledger ledgers[MAX_THREADS];
    if (argc < 4)
        return 64;
    int threads = atoi(argv[1]);
    milliseconds = atol(argv[2]);
    pthread_barrier_init(&mark, NULL, threads + 1);
    pthread_barrier_init(&done, NULL, threads + 1);
    for (int i = 0; i < threads; i++) {
        ledgers[i].state = (uint64_t)(atol(argv[3]) * 100 + i + 1) * 0x9e3779b97f4a7c15ull;
        pthread_create(&ledgers[i].thread, NULL, run, &ledgers[i]);
    }
    wait_for_go();
    pthread_barrier_wait(&mark);
    pthread_barrier_wait(&done);
    tell_all(ledgers, threads);
    _exit(19);
}
