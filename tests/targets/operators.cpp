// operators ROUNDS
//
// Every form of operator new and operator delete, each of them one allocation.
// Sizes are multiples of the alignments, which leaves no choice of what was
// asked for. The last round's block of each form stays.
#include "truth.h"

#include <cstdlib>
#include <new>

static long calls, live;

template <typename Free> static void keep_or_free(void *block, long size, bool last, Free release) {
    truth_sink = block;
    calls++;
    if (last)
        live += size;
    else
        release(block);
}

[[gnu::noinline]] static void every_form(bool last) {
    using std::align_val_t;
    const align_val_t wide{64};
    const std::nothrow_t &quiet = std::nothrow;
    keep_or_free(::operator new(40), 40, last, [](void *p) { ::operator delete(p); });
    keep_or_free(::operator new[](48), 48, last, [](void *p) { ::operator delete[](p); });
    keep_or_free(::operator new(56, quiet), 56, last, [&](void *p) { ::operator delete(p, quiet); });
    keep_or_free(::operator new[](72, quiet), 72, last, [&](void *p) { ::operator delete[](p, quiet); });
    keep_or_free(::operator new(128, wide), 128, last, [&](void *p) { ::operator delete(p, wide); });
    keep_or_free(::operator new[](192, wide), 192, last, [&](void *p) { ::operator delete[](p, wide); });
    keep_or_free(::operator new(256, wide, quiet), 256, last,
                 [&](void *p) { ::operator delete(p, wide, quiet); });
    keep_or_free(::operator new[](320, wide, quiet), 320, last,
                 [&](void *p) { ::operator delete[](p, wide, quiet); });
    keep_or_free(::operator new(80), 80, last, [](void *p) { ::operator delete(p, 80UL); });
    keep_or_free(::operator new(384, wide), 384, last, [&](void *p) { ::operator delete(p, 384UL, wide); });
}

int main(int argc, char **argv) {
    long rounds = argc > 1 ? std::atol(argv[1]) : 0;
    for (long i = 0; i < rounds; i++)
        every_form(i + 1 == rounds);
    truth("calls", calls);
    truth("leaked", live);
    return 0;
}
