/* plugins LOADS CALLS ALPHA.so BETA.so [wait]
 *
 * Loads, uses and unloads two plugins in turn, LOADS times each. */
#define _GNU_SOURCE
#include "truth.h"

#include <dlfcn.h>
#include <stdlib.h>

static void *use(const char *path, long calls) {
    void *plugin = dlopen(path, RTLD_NOW);
    void *address = plugin ? dlsym(plugin, "plugin_work") : NULL;
    if (!address) {
        say(dlerror());
        _exit(97);
    }
    ((void (*)(long))address)(calls);
    dlclose(plugin);
    return address;
}

int main(int argc, char **argv) {
    if (argc < 5)
        return 64;
    long loads = atol(argv[1]), calls = atol(argv[2]), shared = 0;
    if (argc > 5)
        wait_for_go();
    for (long i = 0; i < loads; i++)
        shared += use(argv[3], calls) == use(argv[4], calls);
    truth("calls_each", loads * calls);
    truth("same_address", shared);
    return 0;
}
