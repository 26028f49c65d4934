// A loop of malloc and free below a chosen number of frames, built without frame pointers.
//
//   deep_frames FRAMES PAIRS RESULT
//
// FRAMES counts everything from the caller of malloc to `_start`: 4 at least. The functions differ in
// the size of their frames and in the registers that they save, as real ones do. Writes nanoseconds
// per pair to the file RESULT, says `ready` on standard output, and waits for the end of its input,
// so that what the kernel has counted can still be read.
#include <cstdio>
#include <cstdlib>
#include <ctime>

static unsigned long pairs;
static double each;

static double now() {
    timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return static_cast<double>(time.tv_sec) * 1e9 + static_cast<double>(time.tv_nsec);
}

__attribute__((always_inline)) static inline void measure() {
    double start = 0;
    // A tenth more, to warm caches and for every first-time work.
    for (unsigned long i = 0; i < pairs + pairs / 10; i++) {
        if (i == pairs / 10)
            start = now();
        void *block = malloc(100);
        asm volatile("" : : "r"(block) : "memory");
        free(block);
    }
    each = (now() - start) / static_cast<double>(pairs);
}

template <int KIND> __attribute__((noinline)) static long descend(int left, long sum) {
    volatile char bytes[16 + KIND * 40];
    bytes[KIND] = static_cast<char>(sum);
    long result = sum;
    if (left == 0)
        measure();
    else
        result = descend<(KIND + 3) % 8>(left - 1, sum * 3 + KIND);
    return result + bytes[KIND] + left;
}

int main(int count, char **words) {
    if (count != 4) {
        fprintf(stderr, "usage: deep_frames FRAMES PAIRS RESULT\n");
        return 2;
    }
    // Below this function there are three: two of libc, and `_start`.
    int below = atoi(words[1]) - 4;
    pairs = strtoul(words[2], nullptr, 10);
    long used = 0;
    if (below <= 0)
        measure();
    else
        used = descend<0>(below - 1, count);
    FILE *result = fopen(words[3], "w");
    if (result == nullptr || fprintf(result, "%.3f\n", each) < 0 || fclose(result) != 0) {
        perror(words[3]);
        return 1;
    }
    puts("ready");
    fflush(stdout);
    while (getchar() != EOF) {
    }
    return used == 1;
}
