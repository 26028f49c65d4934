/* wildstack ROUNDS SEED
 *
 * Allocates on stacks of its own that are full of lies: random words, addresses
 * in the middle of code, frames that point to themselves or backwards, the last
 * words before memory that is not there. */
#define _GNU_SOURCE
#include "truth.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#define PAGES 4
#define BYTES (PAGES * 4096UL)

static uint64_t state;

static uint64_t next(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

/* Calls malloc(size) with the stack pointer at `stack` and the frame pointer at
 * `frame`, and comes back. */
void *malloc_on(uint64_t *stack, uint64_t frame, size_t size);
__asm__(".text\n"
        ".globl malloc_on\n"
        "malloc_on:\n"
        "push %rbp\n"
        "push %rbx\n"
        "mov %rsp, %rbx\n"
        "mov %rdi, %rsp\n"
        "mov %rsi, %rbp\n"
        "mov %rdx, %rdi\n"
        "call malloc@plt\n"
        "mov %rbx, %rsp\n"
        "pop %rbx\n"
        "pop %rbp\n"
        "ret\n");

static uint64_t lie(uint64_t *base, uint64_t *word) {
    switch (next() % 8) {
    case 0:
        return next();
    case 1:
        return (uint64_t)&malloc + next() % 4096;
    case 2:
        return (uint64_t)&malloc_on + next() % 256;
    case 3:
        return (uint64_t)word;
    case 4:
        return (uint64_t)(base + next() % (BYTES / 8));
    case 5:
        return (uint64_t)base + BYTES - 8;
    case 6:
        return 0xffffffff81000000UL + next() % 4096;
    default:
        return next() % 3;
    }
}

int main(int argc, char **argv) {
    if (argc < 3)
        return 64;
    long rounds = atol(argv[1]);
    state = (uint64_t)atol(argv[2]) * 2654435761u + 1;
    uint64_t *base = mmap(NULL, BYTES + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED || mprotect((char *)base + BYTES, 4096, PROT_NONE))
        return 98;
    for (long i = 0; i < rounds; i++) {
        for (uint64_t *word = base; word < base + BYTES / 8; word++)
            *word = lie(base, word);
        /* Room for the allocator below, few words or many above. */
        uint64_t above = i % 2 ? next() % 4 + 1 : next() % 512 + 1;
        uint64_t *stack = (uint64_t *)(((uint64_t)base + BYTES - above * 8) & ~15UL);
        void *block = malloc_on(stack, lie(base, stack), 100 + i % 10);
        if (block == NULL)
            return 99;
        truth_sink = block;
        free(block);
    }
    truth("calls", rounds);
    return 18;
}
