// pool_operators ROUNDS
//
// Replaces operator new and operator delete: by a static pool, or by wrappers
// of malloc if MALLOC is defined. All forms but the aligned ones forward to
// these. The pool is full every seventh round, at changing depths of the stack:
// operator new then calls a new-handler, which allocates, and throws. The last
// round's block of each form stays.
#include "truth.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

static long calls, live, thrown, handled;

#ifdef MALLOC

static volatile std::size_t too_much = PTRDIFF_MAX;

void *operator new(std::size_t size) {
    if (void *block = std::malloc(size))
        return block;
    throw std::bad_alloc();
}
void operator delete(void *block) noexcept { std::free(block); }
void operator delete(void *block, std::size_t) noexcept { std::free(block); }

#else

struct Free {
    Free *next;
};
static const std::size_t cell = 512;
alignas(64) static char pool[1024 * cell];
static std::size_t used;
static Free *freed;
static volatile std::size_t too_much = cell + 1;

void *operator new(std::size_t size) {
    for (;;) {
        if (size <= cell && freed) {
            void *block = freed;
            freed = freed->next;
            return block;
        }
        if (size <= cell && used < sizeof pool) {
            used += cell;
            return pool + used - cell;
        }
        std::new_handler handler = std::get_new_handler();
        if (!handler)
            throw std::bad_alloc();
        handler();
    }
}
void operator delete(void *block) noexcept {
    if (!block)
        return;
    Free *cell = static_cast<Free *>(block);
    cell->next = freed;
    freed = cell;
}
void operator delete(void *block, std::size_t) noexcept { ::operator delete(block); }
void *operator new(std::size_t size, std::align_val_t) { return ::operator new(size); }
void operator delete(void *block, std::align_val_t) noexcept { ::operator delete(block); }

// Allocates from both allocators, then gives up at its second call.
static void out_of_memory() {
    static bool again;
    if (again)
        std::set_new_handler(nullptr);
    again = !again;
    handled++;
    void *other = std::malloc(24);
    truth_sink = other;
    std::free(other);
    calls++;
    other = ::operator new(32);
    truth_sink = other;
    ::operator delete(other);
    calls++;
}

#endif

template <typename Free> static void keep_or_free(void *block, long size, bool last, Free release) {
    truth_sink = block;
    calls++;
    if (last)
        live += size;
    else
        release(block);
}

[[gnu::noinline]] static void every_form(bool last) {
    const std::nothrow_t &quiet = std::nothrow;
    keep_or_free(::operator new(40), 40, last, [](void *p) { ::operator delete(p); });
    keep_or_free(::operator new[](48), 48, last, [](void *p) { ::operator delete[](p); });
    keep_or_free(::operator new(56, quiet), 56, last, [&](void *p) { ::operator delete(p, quiet); });
    keep_or_free(::operator new[](72, quiet), 72, last, [&](void *p) { ::operator delete[](p, quiet); });
    keep_or_free(::operator new(80), 80, last, [](void *p) { ::operator delete(p, 80UL); });
#ifndef MALLOC
    const std::align_val_t wide{64};
    keep_or_free(::operator new(128, wide), 128, last, [&](void *p) { ::operator delete(p, wide); });
#endif
}

[[gnu::noinline]] static void fail_at(int depth) {
    char room[64];
    truth_sink = room;
    if (depth > 0)
        fail_at(depth - 1);
    else
        truth_sink = ::operator new(too_much);
    truth_sink = room;
}

static void fail(long round) {
#ifndef MALLOC
    std::set_new_handler(out_of_memory);
#endif
    try {
        fail_at(static_cast<int>(round % 11));
    } catch (const std::bad_alloc &) {
        thrown++;
        calls++; // the exception object, from malloc
    }
    truth_sink = ::operator new(too_much, std::nothrow);
    calls++; // as above, inside the runtime
}

int main(int argc, char **argv) {
    long rounds = argc > 1 ? std::atol(argv[1]) : 0;
    // The runtime of a static program makes itself tables at the first exception.
    try {
        throw 0;
    } catch (int) {
    }
    for (long i = 0; i < rounds; i++) {
        if (i % 7 == 3)
            fail(i);
        every_form(i + 1 == rounds);
    }
    truth("calls", calls);
    truth("leaked", live);
    truth("thrown", thrown);
    truth("handled", handled);
    return 5;
}
