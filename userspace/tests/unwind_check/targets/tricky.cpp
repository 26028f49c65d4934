// Allocates under every kind of frame that is hard to unwind.
#include <alloca.h>
#include <coroutine>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <spawn.h>
#include <stdexcept>
#include <sys/wait.h>
#include <thread>
#include <ucontext.h>
#include <vector>

extern char **environ;

static thread_local volatile int sink;
#define FRAME __attribute__((noinline, noclone))

FRAME static void allocate(size_t bytes) {
    void *volatile block = malloc(bytes);
    free(block);
    sink = sink + 1;
}

// Realigns its stack.
FRAME static void aligned(int depth) {
    alignas(64) volatile float lanes[16] = {};
    lanes[depth & 15] = depth;
    allocate(64);
    if (depth > 0)
        aligned(depth - 1);
    sink = sink + lanes[depth & 15];
}

FRAME static void with_alloca(int depth) {
    char *volatile bytes = static_cast<char *>(alloca(16 + depth * 7));
    bytes[0] = depth;
    allocate(32);
    if (depth > 0)
        with_alloca(depth - 1);
    sink = sink + bytes[0];
}

// Both: GCC keeps the caller's frame in a register of its own (DRAP).
FRAME static void aligned_with_alloca(int depth) {
    alignas(32) volatile double lanes[8] = {};
    char *volatile bytes = static_cast<char *>(alloca(16 + depth * 9));
    bytes[0] = lanes[0];
    allocate(48);
    if (depth > 0)
        aligned_with_alloca(depth - 1);
    sink = sink + bytes[0] + lanes[1];
}

FRAME static void variable_array(int length) {
    volatile int numbers[length];
    numbers[0] = length;
    allocate(length);
    if (length > 2)
        variable_array(length - 1);
    sink = sink + numbers[0];
}

// Larger than a 16-bit offset can tell.
FRAME static void huge(int depth) {
    volatile char bytes[60000];
    bytes[59999] = depth;
    allocate(10);
    if (depth > 0)
        huge(depth - 1);
    sink = sink + bytes[59999];
}

FRAME static int throws(int depth) {
    allocate(8);
    if (depth == 0)
        throw std::runtime_error("a message that is too long to be kept inside of a string");
    return throws(depth - 1) + 1;
}

static int compares(const void *a, const void *b) {
    allocate(5);
    return *static_cast<const int *>(a) - *static_cast<const int *>(b);
}

static void recursive_lambda(int depth) {
    std::function<void(int)> next = [&](int left) {
        std::vector<int> numbers(left + 1);
        if (left > 0)
            next(left - 1);
        sink = sink + numbers[0];
    };
    next(depth);
}

FRAME static void everything() {
    for (int i = 0; i < 30; i++) {
        aligned(i);
        with_alloca(i);
        aligned_with_alloca(i);
        variable_array(i + 2);
        huge(5);
        try {
            throws(i);
        } catch (const std::exception &error) {
            sink = sink + strlen(error.what());
        }
        int numbers[64];
        for (int j = 0; j < 64; j++)
            numbers[j] = j * 37 % 64;
        qsort(numbers, 64, sizeof(int), compares);
        recursive_lambda(12);
    }
}

static void on_signal(int) { allocate(48); }

FRAME static void raises(int depth) {
    if (depth > 0) {
        raises(depth - 1);
        sink = sink + 1;
        return;
    }
    for (int i = 0; i < 50; i++)
        raise(SIGUSR1);
}

// Skips the two bytes of the instruction that faulted.
static void on_fault(int, siginfo_t *, void *context) {
    allocate(77);
    static_cast<ucontext_t *>(context)->uc_mcontext.gregs[REG_RIP] += 2;
}

// `mov (%rax),%eax` at address 0: the handler is entered between two instructions of this frame.
FRAME static void faults() {
    for (int i = 0; i < 20; i++)
        asm volatile("xor %%eax, %%eax\n.byte 0x8b, 0x00" ::: "rax", "memory");
}

static void handle_faults(int flags) {
    struct sigaction action = {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_NODEFER | flags;
    sigaction(SIGSEGV, &action, nullptr);
    faults();
}

static ucontext_t outer, inner;

static void coroutine() {
    for (int i = 0; i < 10; i++) {
        allocate(99);
        swapcontext(&inner, &outer);
    }
}

FRAME static void contexts() {
    static char stack[64 << 10];
    getcontext(&inner);
    inner.uc_stack.ss_sp = stack;
    inner.uc_stack.ss_size = sizeof stack;
    inner.uc_link = &outer;
    makecontext(&inner, coroutine, 0);
    for (int i = 0; i < 10; i++)
        swapcontext(&outer, &inner);
}

// A coroutine of the language: its frame is on the heap, and it is resumed from other places.
struct Generator {
    struct promise_type {
        int value = 0;
        Generator get_return_object() {
            return {std::coroutine_handle<promise_type>::from_promise(*this)};
        }
        std::suspend_always initial_suspend() noexcept { return {}; }
        std::suspend_always final_suspend() noexcept { return {}; }
        std::suspend_always yield_value(int yielded) {
            allocate(21);
            value = yielded;
            return {};
        }
        void return_void() { allocate(22); }
        void unhandled_exception() { allocate(23); }
    };
    std::coroutine_handle<promise_type> handle;
};

FRAME static Generator numbers(int count, bool throws_at_end) {
    std::vector<int> local(count);
    for (int i = 0; i < count; i++) {
        allocate(24 + i);
        co_yield local[i] + i;
    }
    if (throws_at_end)
        throws(3);
}

FRAME static Generator nested(int depth) {
    Generator inner = depth > 0 ? nested(depth - 1) : numbers(5, false);
    while (!inner.handle.done()) {
        inner.handle.resume();
        co_yield inner.handle.promise().value;
    }
    inner.handle.destroy();
}

FRAME static void resumes(std::coroutine_handle<Generator::promise_type> handle, int depth) {
    if (depth > 0)
        resumes(handle, depth - 1);
    else
        handle.resume();
    sink = sink + 1;
}

static void coroutines() {
    for (Generator generator : {numbers(6, true), numbers(6, false), nested(8)}) {
        for (int depth = 0; !generator.handle.done(); depth++)
            resumes(generator.handle, depth);
        generator.handle.destroy();
    }
}

// Virtual calls, with more than one base, so that some go through thunks.
struct Left {
    virtual ~Left() = default;
    virtual void left(int depth) = 0;
};

struct Right {
    virtual ~Right() = default;
    virtual Right *right(int depth) = 0;
};

struct Both : Left, Right {
    std::unique_ptr<Both> next;
    explicit Both(int depth) : next(depth > 0 ? std::make_unique<Both>(depth - 1) : nullptr) {}
    ~Both() override { allocate(31); }
    void left(int depth) override {
        allocate(32);
        if (next)
            static_cast<Right *>(next.get())->right(depth + 1);
    }
    Both *right(int depth) override {
        allocate(33 + depth);
        if (next)
            static_cast<Left *>(next.get())->left(depth + 1);
        return this;
    }
};

static void virtual_calls() {
    for (int depth = 0; depth < 20; depth++) {
        std::unique_ptr<Right> right = std::make_unique<Both>(depth);
        right->right(0)->right(0);
    }
}

static void at_exit() { allocate(11); }

int main() {
    atexit(at_exit);
    everything();
    signal(SIGUSR1, on_signal);
    raises(5);
    static char stack[256 << 10];
    stack_t alternate = {};
    alternate.ss_sp = stack;
    alternate.ss_size = sizeof stack;
    sigaltstack(&alternate, nullptr);
    handle_faults(0);
    handle_faults(SA_ONSTACK);
    contexts();
    coroutines();
    virtual_calls();
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++)
        threads.emplace_back(everything);
    for (std::thread &thread : threads)
        thread.join();
    pid_t child;
    char name[] = "true", *arguments[] = {name, nullptr};
    if (posix_spawnp(&child, name, nullptr, nullptr, arguments, environ) == 0)
        waitpid(child, nullptr, 0);
    return system("true");
}
