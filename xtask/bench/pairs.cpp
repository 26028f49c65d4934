// The work that `cargo xtask bench tracing` times under every tracer.
//
//   pairs DEPTH THREADS PAIRS RESULT [attached]
//   pairs gaps RESULT
//
// Each thread allocates and frees PAIRS blocks below DEPTH calls of functions that have no frame
// pointers. Written to the file RESULT: nanoseconds a pair, and the process's peak of resident KiB.
// The time is taken inside, so that no tracer's start-up counts. With `attached` it says `ready` and
// waits until somebody has put probes on malloc and free. With `gaps` it says `ready` and writes the
// longest time in milliseconds that it did not run until a byte came on its input.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <thread>
#include <vector>

namespace {

double now() {
    timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return double(time.tv_sec) * 1e9 + double(time.tv_nsec);
}

constexpr unsigned long PAIRS_A_DESCENT = 8;

void pairs(unsigned long count) {
    for (unsigned long i = 0; i < count; i++) {
        void *block = malloc(100);
        // The compiler must believe that the block is used, or it drops the pair.
        asm volatile("" : : "r"(block) : "memory");
        free(block);
    }
}

template <int DEPTH> [[gnu::noinline]] void descend(unsigned long count) {
    if constexpr (DEPTH <= 3) {
        pairs(count);
    } else {
        descend<DEPTH - 1>(count);
    }
    asm volatile("" : : : "memory"); // no jump instead of a call
}

void run(int depth, unsigned long count) {
    if (depth <= 3) {
        pairs(count);
        return;
    }
    for (unsigned long done = 0; done < count; done += PAIRS_A_DESCENT) {
        descend<30>(PAIRS_A_DESCENT);
    }
}

// A probe is a breakpoint in the first instructions.
bool is_probed(void *function) {
    auto *code = static_cast<volatile unsigned char *>(function);
    for (int i = 0; i < 8; i++) {
        if (code[i] == 0xcc) {
            return true;
        }
    }
    return false;
}

void wait_for_probes() {
    puts("ready");
    fflush(stdout);
    timespec pause = {0, 10'000'000};
    while (!is_probed(reinterpret_cast<void *>(malloc)) || !is_probed(reinterpret_cast<void *>(free))) {
        nanosleep(&pause, nullptr);
    }
    pause.tv_nsec = 300'000'000; // the rest of the probes
    nanosleep(&pause, nullptr);
}

long peak_kib() {
    FILE *status = fopen("/proc/self/status", "r");
    char line[256];
    long peak = 0;
    while (status != nullptr && fgets(line, sizeof line, status) != nullptr) {
        sscanf(line, "VmHWM: %ld", &peak);
    }
    return peak;
}

int gaps(const char *result) {
    puts("ready");
    fflush(stdout);
    std::atomic<bool> stop = false;
    std::thread reader([&] {
        getchar();
        stop = true;
    });
    double longest = 0, last = now();
    while (!stop) {
        double time = now();
        longest = std::max(longest, time - last);
        last = time;
    }
    reader.join();
    FILE *file = fopen(result, "w");
    return file == nullptr || fprintf(file, "%.3f 0\n", longest / 1e6) < 0 || fclose(file) != 0;
}

} // namespace

int main(int count, char **words) {
    if (count == 3 && strcmp(words[1], "gaps") == 0) {
        return gaps(words[2]);
    }
    if (count < 5) {
        fprintf(stderr, "usage: pairs DEPTH THREADS PAIRS RESULT [attached]\n");
        return 2;
    }
    int depth = atoi(words[1]), threads = atoi(words[2]);
    unsigned long each = strtoul(words[3], nullptr, 10);
    if (count > 5) {
        wait_for_probes();
    }
    run(depth, 1000); // warm caches, and every tracer's first-time work
    double start = now();
    std::vector<std::thread> others;
    for (int i = 1; i < threads; i++) {
        others.emplace_back(run, depth, each);
    }
    run(depth, each);
    for (auto &other : others) {
        other.join();
    }
    double elapsed = (now() - start) / double(each);
    FILE *result = fopen(words[4], "w");
    if (result == nullptr || fprintf(result, "%.3f %ld\n", elapsed, peak_kib()) < 0 || fclose(result) != 0) {
        perror(words[4]);
        return 1;
    }
    return 0;
}
