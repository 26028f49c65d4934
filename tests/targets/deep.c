/* deep DEPTH
 *
 * One allocation below DEPTH calls of `descend`. */
#include "truth.h"

#include <stdlib.h>

__attribute__((noinline)) static void descend(long depth) {
    if (depth > 1)
        descend(depth - 1);
    else
        truth_sink = malloc(1234);
    truth("left", depth);
}

int main(int argc, char **argv) {
    descend(argc > 1 ? atol(argv[1]) : 1);
    return 0;
}
