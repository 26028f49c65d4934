// exceptions COUNT
//
// Throws and catches COUNT exceptions through several frames; every hundredth
// is the bad_alloc of a `new` that cannot be served. Each other exception
// object is one allocation of the C++ runtime; a bad_alloc's object is one as
// well, the failed `new` is none.
#include "truth.h"

#include <cstdint>
#include <cstdlib>
#include <new>

namespace {

struct Problem {
    long number;
};

// Frees what it owns while an exception passes.
class Owner {
  public:
    explicit Owner(long size) : bytes_(new char[size]) { truth_sink = bytes_; }
    ~Owner() { delete[] bytes_; }
    Owner(const Owner &) = delete;
    Owner &operator=(const Owner &) = delete;

  private:
    char *bytes_;
};

volatile std::size_t huge = PTRDIFF_MAX;

[[gnu::noinline]] void fail(long i) {
    if (i % 100 == 0)
        truth_sink = ::operator new(huge);
    throw Problem{i};
}

[[gnu::noinline]] void pass_through(long i) {
    Owner owner(16 + i % 50);
    fail(i);
}

} // namespace

int main(int argc, char **argv) {
    long count = argc > 1 ? std::atol(argv[1]) : 0;
    long problems = 0, bad_allocs = 0, calls = 0, sum = 0;
    for (long i = 0; i < count; i++) {
        try {
            calls += 2; // the owner's block and the exception object
            pass_through(i);
        } catch (const Problem &problem) {
            problems++;
            sum += problem.number;
        } catch (const std::bad_alloc &) {
            bad_allocs++;
        }
    }
    truth("problems", problems);
    truth("bad_allocs", bad_allocs);
    truth("sum", sum);
    truth("calls", calls);
    truth("leaked", 0);
    return 3;
}
