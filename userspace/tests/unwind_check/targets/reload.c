/* Loads and unloads two libraries in turn: each must come to lie where the other one was. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

int main(int count, char **words) {
    if (count != 4)
        return 2;
    int rounds = atoi(words[3]), same = 0;
    void *before = NULL;
    for (int i = 0; i < rounds; i++) {
        void *library = dlopen(words[1 + i % 2], RTLD_NOW);
        if (!library)
            return fprintf(stderr, "%s\n", dlerror()), 1;
        void *function = dlsym(library, "work");
        same += function == before;
        before = function;
        for (int depth = 0; depth < 4; depth++)
            ((void (*)(int))function)(depth);
        dlclose(library);
    }
    /* The first has no predecessor. */
    if (same < rounds - 1)
        return fprintf(stderr, "only %d of %d at the same address\n", same, rounds), 1;
    return 0;
}
