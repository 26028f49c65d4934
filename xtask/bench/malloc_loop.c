/* The loop that the benchmark times under every tracer: one malloc and one free, nothing else.
 *
 *   malloc_loop PAIRS RESULT   runs the loop and writes nanoseconds per pair to the file RESULT
 *   malloc_loop hold           says `ready` on standard output, then waits for the end of its input
 *
 * The time is taken inside, so that no tracer's start-up counts; the result goes to a file, since
 * tracers have words of their own for the outputs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static void run(unsigned long pairs) {
    for (unsigned long i = 0; i < pairs; i++) {
        void *block = malloc(100);
        /* The compiler must believe that the block is used, or it drops the pair. */
        __asm__ volatile("" : : "r"(block) : "memory");
        free(block);
    }
}

static int hold(void) {
    run(1);
    puts("ready");
    fflush(stdout);
    while (getchar() != EOF) {
    }
    return 0;
}

int main(int count, char **words) {
    if (count == 2 && strcmp(words[1], "hold") == 0) {
        return hold();
    }
    if (count != 3) {
        fprintf(stderr, "usage: malloc_loop PAIRS RESULT | malloc_loop hold\n");
        return 2;
    }
    unsigned long pairs = strtoul(words[1], NULL, 10);
    run(1000); /* warm caches, and every tracer's first-time work */
    double start = now();
    run(pairs);
    double each = (now() - start) / (double)pairs;
    FILE *result = fopen(words[2], "w");
    if (result == NULL || fprintf(result, "%.3f\n", each) < 0 || fclose(result) != 0) {
        perror(words[2]);
        return 1;
    }
    return 0;
}
