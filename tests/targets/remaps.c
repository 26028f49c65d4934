/* remaps ROUNDS FIRST SECOND [lock]
 *
 * Maps two files with code at the same address in turn, without the dynamic linker, ROUNDS times
 * each, and lets each allocate: replaces one by the other at once in even rounds, unmaps before in odd
 * ones. With `lock`, the mappings are locked half of the time, as by somebody who attaches to a
 * library: a thread changes the protection of much memory, and then waits for as long. */
#define _GNU_SOURCE
#include "truth.h"

#include <elf.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { ROOM = 1 << 16, MUCH = 16 << 20 };

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

static long long now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static void *lock_mappings(void *much) {
    memset(much, 1, MUCH);
    for (int writable = 0;; writable = !writable) {
        long long begin = now();
        mprotect(much, MUCH, PROT_READ | (writable ? PROT_WRITE : 0));
        for (long long end = now(), until = end + (end - begin); end < until;)
            end = now();
    }
    return NULL;
}

int main(int argc, char **argv) {
    if (argc < 4)
        return 64;
    long rounds = atol(argv[1]);
    if (argc > 4) {
        void *much = mmap(NULL, MUCH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        pthread_t thread;
        pthread_create(&thread, NULL, lock_mappings, much);
    }
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
