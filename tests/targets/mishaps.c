/* mishaps MODE
 *
 * Waits at a mark, allocates, tells how often, and has the mishap MODE; where it
 * survives that, it allocates again and tells how often altogether. */
#define _GNU_SOURCE
#include "truth.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

static long calls;

static void *must(void *block) {
    if (block == NULL)
        _exit(99);
    truth_sink = block;
    calls++;
    return block;
}

static void allocate(void) {
    for (int i = 0; i < 100; i++)
        free(must(malloc(100 + i)));
}

/* Another user, and no looking into from outside any more. */
static void change_user(void) {
    if (setgid(65534) || setuid(65534) || prctl(PR_SET_DUMPABLE, 0))
        _exit(98);
}

static void close_everything(void) {
    for (int fd = 3; fd < 1024; fd++)
        close(fd);
}

/* A filter that ends the process at any system call but those it makes, and the
 * one of return probes only where there is one. */
static void filter_system_calls(void) {
#define ALLOW(number)                                                                              \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        ALLOW(SYS_write),
        ALLOW(SYS_brk),
        ALLOW(SYS_mmap),
        ALLOW(SYS_exit_group),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
        _exit(98);
}

/* The code of the C library goes; what is left to do is done by hand. */
static void unmap_library(void) {
    unsigned long page = (unsigned long)&malloc & ~0xfffUL;
    register long status __asm__("rdi") = 15;
    __asm__ volatile("mov %0, %%rdi\n\t"
                     "mov $0x1000, %%esi\n\t"
                     "mov $11, %%eax\n\t"
                     "syscall\n\t"
                     "mov $15, %%edi\n\t"
                     "mov $231, %%eax\n\t"
                     "syscall"
                     :
                     : "r"(page), "r"(status)
                     : "rax", "rcx", "rsi", "r11", "memory");
}

static void free_twice(void) {
    void *block = must(malloc(100));
    free(block);
    free(block);
}

static void corrupt_heap(void) {
    char *first = must(malloc(5000)), *second = must(malloc(5000));
    memset(first, 0xee, 5016);
    free(second);
}

/* As large a block as nobody has; it fails, or is mapped and never touched. */
static void allocate_hugely(void) {
    void *block = malloc(100L << 30);
    if (block != NULL)
        calls++;
    truth_sink = block;
    free(block);
}

static pthread_barrier_t together;

static void *allocate_together(void *argument) {
    free(malloc(200));
    pthread_barrier_wait(&together);
    return argument;
}

/* As many threads as are allowed, all at the same time. */
static void start_many_threads(void) {
    enum { MOST = 10000, STACK = 32 << 10 };
    static pthread_t threads[MOST];
    struct rlimit limit;
    long most = MOST;
    if (getrlimit(RLIMIT_NPROC, &limit) == 0 && (long)limit.rlim_cur / 2 < most)
        most = (long)limit.rlim_cur / 2;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK);
    pthread_barrier_init(&together, NULL, most + 1);
    long started = 0;
    while (started < most &&
           pthread_create(&threads[started], &attributes, allocate_together, NULL) == 0)
        started++;
    truth("threads", started);
    if (started < most)
        _exit(17); /* of the machine */
    pthread_barrier_wait(&together);
    for (long i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    calls += started;
}

static const struct {
    const char *name;
    void (*happen)(void);
} mishaps[] = {
    {"change-user", change_user},
    {"close-everything", close_everything},
    {"filter", filter_system_calls},
    {"unmap-library", unmap_library},
    {"free-twice", free_twice},
    {"corrupt-heap", corrupt_heap},
    {"huge", allocate_hugely},
    {"many-threads", start_many_threads},
};

int main(int argc, char **argv) {
    if (argc < 2)
        return 64;
    wait_for_go();
    for (size_t i = 0; i < sizeof mishaps / sizeof *mishaps; i++) {
        if (strcmp(mishaps[i].name, argv[1]) != 0)
            continue;
        allocate();
        truth("calls_before", calls);
        mishaps[i].happen();
        allocate();
        truth("calls", calls);
        _exit(16);
    }
    return 64;
}
