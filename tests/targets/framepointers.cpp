// framepointers THREADS ROUNDS [wait]
//
// A program with frame pointers whose functions allocate in a known order of
// merit: parse_record calls most often, fill_cache holds the peak, forget
// leaks most, and build_index does it through operator new. stdout tells each
// function's calls and the line of its call.
#include "truth.h"

#include <cstdlib>
#include <pthread.h>

#define NOINLINE [[gnu::noinline]]

namespace shop {

long parse_line, fill_line, forget_line, index_line;

NOINLINE void *parse_record(long i) {
    parse_line = __LINE__ + 1;
    void *record = std::malloc(64 + i % 16);
    truth_sink = record;
    return record;
}

NOINLINE void parse_all(long rounds) {
    for (long i = 0; i < rounds * 20; i++)
        std::free(parse_record(i));
}

class Cache {
  public:
    NOINLINE void *fill_cache(long i) {
        fill_line = __LINE__ + 1;
        void *entry = std::malloc(20000 + i);
        truth_sink = entry;
        return entry;
    }
};

NOINLINE void forget(long i) {
    forget_line = __LINE__ + 1;
    void *lost = std::malloc(1000 + i % 2);
    truth_sink = lost;
}

struct Index {
    long slots[40];
};

NOINLINE Index *build_index() {
    index_line = __LINE__ + 1;
    Index *index = new Index();
    truth_sink = index;
    return index;
}

NOINLINE void serve(long rounds) {
    parse_all(rounds);
    Cache cache;
    for (long i = 0; i < rounds; i++) {
        for (int k = 0; k < 4; k++)
            delete build_index();
        std::free(cache.fill_cache(i));
        forget(i);
    }
    truth_sink = nullptr;
}

} // namespace shop

static long rounds;
static pthread_barrier_t mark;

static void *run(void *) {
    pthread_barrier_wait(&mark);
    shop::serve(rounds);
    return nullptr;
}

int main(int argc, char **argv) {
    if (argc < 3)
        return 64;
    int threads = std::atoi(argv[1]);
    rounds = std::atol(argv[2]);
    pthread_t ids[16];
    pthread_barrier_init(&mark, nullptr, threads + 1);
    for (int i = 0; i < threads; i++)
        pthread_create(&ids[i], nullptr, run, nullptr);
    if (argc > 3)
        wait_for_go();
    pthread_barrier_wait(&mark);
    for (int i = 0; i < threads; i++)
        pthread_join(ids[i], nullptr);

    truth("parse_record_calls", threads * rounds * 20);
    truth("parse_record_line", shop::parse_line);
    truth("fill_cache_calls", threads * rounds);
    truth("fill_cache_line", shop::fill_line);
    truth("forget_calls", threads * rounds);
    truth("forget_line", shop::forget_line);
    truth("build_index_calls", threads * rounds * 4);
    truth("build_index_line", shop::index_line);
    return 0;
}
