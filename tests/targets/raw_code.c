/* Compiled twice, into files that differ in a name and the size of a frame only. Whoever maps one as
 * a whole, with leave to execute it, can call its entry: it refers to nothing outside itself. */
#include <stddef.h>

#if !defined(NAME) || !defined(FRAME)
#error "NAME is the function's name, FRAME the bytes of its frame"
#endif

/* The frame is in use across the call, so that it cannot be left out. */
void *NAME(void *(*allocate)(size_t), size_t size) {
    volatile char frame[FRAME];
    frame[0] = (char)size;
    void *block = allocate(size);
    frame[FRAME - 1] = frame[0];
    return block;
}
