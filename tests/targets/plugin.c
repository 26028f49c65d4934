/* Compiled twice, into alpha.so and beta.so, which differ in one function name
 * only: unloaded and loaded in turn they take each other's addresses. */
#include <stdlib.h>

#ifndef PLUGIN
#error "PLUGIN is the name of the function that allocates"
#endif

static void *volatile kept;

__attribute__((noinline)) void PLUGIN(long i) {
    kept = malloc(100 + i % 10);
    if (i % 5 != 0)
        free(kept);
}

void plugin_work(long calls) {
    for (long i = 0; i < calls; i++)
        PLUGIN(i);
}
