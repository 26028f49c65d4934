/* longjmp ROUNDS
 *
 * Leaves functions by longjmp: from a deep recursion that allocates on its
 * way, out of a signal handler, and out of an allocator in the middle of its
 * work: posix_memalign is made to store its result into a page that cannot be
 * written, and the handler of that fault jumps. Such a call never returned, so
 * it is no allocation; the calls after it have to be counted as ever. */
#define _GNU_SOURCE
#include "truth.h"

#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>

#define DEPTH 20

static jmp_buf back;
static sigjmp_buf back_from_signal;
static long calls, live, jumps, faults;
static void *blocks[DEPTH + 1];

__attribute__((noinline)) static void descend(int depth) {
    volatile char frame[64];
    frame[0] = (char)depth;
    blocks[depth] = malloc(100 + depth);
    calls++;
    if (depth == DEPTH)
        longjmp(back, 1);
    descend(depth + 1);
    frame[1] = frame[0];
}

static void jump_out_of_recursion(void) {
    if (setjmp(back) == 0)
        descend(0);
    jumps++;
    for (int i = 0; i <= DEPTH; i++)
        free(blocks[i]);
}

static void on_fault(int signal) {
    (void)signal;
    faults++;
    siglongjmp(back_from_signal, 1);
}

static void jump_out_of_handler(volatile char *forbidden) {
    if (sigsetjmp(back_from_signal, 1) == 0)
        *forbidden = 1;
    truth_sink = malloc(55);
    calls++;
    free(truth_sink);
}

static void jump_out_of_allocator(void **forbidden) {
    if (sigsetjmp(back_from_signal, 1) == 0)
        truth("not_reached", posix_memalign(forbidden, 64, 1000));
    truth_sink = malloc(66); /* stays: a leak of 66 bytes a round */
    calls++;
    live += 66;
}

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 0;
    void *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct sigaction action = {.sa_handler = on_fault};
    sigaction(SIGSEGV, &action, NULL);

    for (long i = 0; i < rounds; i++) {
        jump_out_of_recursion();
        jump_out_of_handler(page);
        jump_out_of_allocator(page);
    }
    truth("jumps", jumps);
    truth("faults", faults);
    truth("calls", calls);
    truth("leaked", live);
    return 4;
}
