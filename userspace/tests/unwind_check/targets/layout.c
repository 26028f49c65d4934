/* A small library that allocates. Built with LAYOUT 1 or 2 its functions and calls have the same
 * addresses, but other frames. */
#include <stdlib.h>

#if LAYOUT == 1
enum { BYTES = 200 };
#else
enum { BYTES = 1000 };
#endif

#define PLACED __attribute__((noinline, noclone, aligned(256)))

PLACED static void *allocate(int size, volatile char *above) {
    volatile char bytes[BYTES];
    bytes[0] = above[0] + size;
    void *block = malloc(size + bytes[0] % 2);
    above[1] = bytes[0];
    return block;
}

PLACED static void *descend(int depth, volatile char *above) {
    volatile char bytes[BYTES * 2];
    bytes[0] = above[0];
    void *block = depth > 0 ? descend(depth - 1, bytes) : allocate(depth + 1, bytes);
    above[1] = bytes[1];
    return block;
}

PLACED void work(int depth) {
    volatile char bytes[2] = {0};
    free(descend(depth, bytes));
}
