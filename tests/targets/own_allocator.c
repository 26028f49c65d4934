/* A small allocator, as a library: each size has a list of free blocks in each thread.
 *
 * Built with -fcf-protection=full, so that its functions begin with `endbr64`. Its malloc checks
 * a block before it returns it, as those of C libraries do. Memory is never given back.
 * The compiler must not take its own functions for those that it knows: -fno-builtin. */
#define _GNU_SOURCE
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define LISTS 48       /* block sizes 2^0 to 2^47 */
#define CHUNK (1 << 20)

/* Stands before each block. */
struct head {
    uint32_t list;  /* of the memory that was taken */
    uint32_t shift; /* how far the block lies behind that, in bytes */
    size_t size;    /* that was asked for */
};

struct free_block {
    struct free_block *next;
};

/* Where the dynamic linker finds room for it without allocating any. */
#define PER_THREAD static __thread __attribute__((tls_model("initial-exec")))

PER_THREAD struct free_block *lists[LISTS];
PER_THREAD char *chunk, *chunk_end;

static unsigned list_of(size_t size) {
    size_t all = size + sizeof(struct head);
    return all <= 32 ? 5 : 64 - __builtin_clzl(all - 1);
}

static void *map(size_t bytes) {
    void *memory =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

__attribute__((noinline)) static void *refill(unsigned list) {
    size_t bytes = (size_t)1 << list;
    char *memory;
    if (bytes > CHUNK / 4) {
        memory = map(bytes);
    } else {
        if ((size_t)(chunk_end - chunk) < bytes) {
            chunk = map(CHUNK);
            chunk_end = chunk ? chunk + CHUNK : NULL;
        }
        memory = chunk;
        chunk = memory ? memory + bytes : NULL;
    }
    if (memory == NULL)
        return NULL;
    ((struct head *)memory)->list = list;
    return memory + sizeof(struct head);
}

static struct head *head_of(void *block) {
    return (struct head *)((uintptr_t)block - sizeof(struct head));
}

void *malloc(size_t size) {
    if (size > PTRDIFF_MAX / 2) {
        errno = ENOMEM;
        return NULL;
    }
    unsigned list = list_of(size);
    struct free_block *block = lists[list];
    if (block != NULL) {
        if ((uintptr_t)block % 16 != 0)
            abort();
        lists[list] = block->next;
    } else {
        block = refill(list);
        if (block == NULL) {
            errno = ENOMEM;
            return NULL;
        }
    }
    head_of(block)->shift = 0;
    head_of(block)->size = size;
    return block;
}

void free(void *block) {
    if (block == NULL)
        return;
    block = (char *)block - head_of(block)->shift;
    uint32_t list = head_of(block)->list;
    ((struct free_block *)block)->next = lists[list];
    lists[list] = block;
}

void cfree(void *block) __attribute__((alias("free")));

void *calloc(size_t count, size_t size) {
    size_t all;
    if (__builtin_mul_overflow(count, size, &all)) {
        errno = ENOMEM;
        return NULL;
    }
    void *block = malloc(all);
    if (block != NULL)
        memset(block, 0, all);
    return block;
}

void *realloc(void *block, size_t size) {
    if (block == NULL)
        return malloc(size);
    if (size == 0) {
        free(block);
        return NULL;
    }
    void *moved = malloc(size);
    if (moved == NULL)
        return NULL;
    size_t held = head_of(block)->size;
    memcpy(moved, block, held < size ? held : size);
    free(block);
    return moved;
}

void *reallocarray(void *block, size_t count, size_t size) {
    size_t all;
    if (__builtin_mul_overflow(count, size, &all)) {
        errno = ENOMEM;
        return NULL;
    }
    return realloc(block, all);
}

void *memalign(size_t alignment, size_t size) {
    if (size > PTRDIFF_MAX / 2) {
        errno = ENOMEM;
        return NULL;
    }
    char *block = malloc(size + alignment + sizeof(struct head));
    if (block == NULL)
        return NULL;
    char *aligned = block + sizeof(struct head);
    aligned += -(uintptr_t)aligned % alignment;
    head_of(aligned)->shift = aligned - block;
    head_of(aligned)->size = size;
    return aligned;
}

void *aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }

int posix_memalign(void **out, size_t alignment, size_t size) {
    if (alignment % sizeof(void *) != 0 || (alignment & (alignment - 1)) != 0)
        return EINVAL;
    void *block = memalign(alignment, size);
    if (block == NULL)
        return ENOMEM;
    *out = block;
    return 0;
}

void *valloc(size_t size) { return memalign(4096, size); }

void *pvalloc(size_t size) {
    void *block;
    return posix_memalign(&block, 4096, (size + 4095) / 4096 * 4096) == 0 ? block : NULL;
}
