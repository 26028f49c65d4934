/* remaps ROUNDS FIRST SECOND
 *
 * Maps two files with code at the same address in turn, without the dynamic linker, ROUNDS times
 * each, and lets each allocate: replaces one by the other at once in even rounds, unmaps before in odd
 * ones. */
#define _GNU_SOURCE
#include "truth.h"

#include <elf.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ROOM = 1 << 16 };

static void *volatile kept;

__attribute__((noinline)) static void *allocate(size_t size) {
    kept = malloc(size);
    return kept;
}

typedef void *function(void *(*)(size_t), size_t);

__attribute__((noinline)) static void use(const char *path, char *place, size_t size) {
    int file = open(path, O_RDONLY);
    char *code = mmap(place, ROOM, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED, file, 0);
    close(file);
    if (code == MAP_FAILED)
        _exit(97);
    function *entry = (function *)(code + ((Elf64_Ehdr *)code)->e_entry);
    free(entry(allocate, size));
}

int main(int argc, char **argv) {
    if (argc < 4)
        return 64;
    long rounds = atol(argv[1]);
    char *place = mmap(NULL, ROOM, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (long i = 0; i < rounds; i++) {
        use(argv[2], place, 1000);
        if (i % 2 != 0)
            munmap(place, ROOM);
        use(argv[3], place, 2000);
        if (i % 2 != 0)
            munmap(place, ROOM);
    }
    truth("calls_each", rounds);
    return 0;
}
