/* suppressed
 *
 * Leaks 1000 bytes that it declares to be none, and 70 others. */
#include "truth.h"

#include <stdlib.h>

const char *__lsan_default_suppressions(void);

const char *__lsan_default_suppressions(void) { return "# known\nleak:known_leak\n"; }

__attribute__((noinline)) static void known_leak(void) {
    truth_sink = malloc(1000);
    truth_sink = NULL;
}

__attribute__((noinline)) static void other_leak(void) {
    truth_sink = malloc(70);
    truth_sink = NULL;
}

int main(void) {
    known_leak();
    other_leak();
    return 0;
}
