/* How a target speaks with its harness: `key=value` lines on stdout, and a
 * start line that lets a tracer attach at a known moment.
 *
 * Nothing here may allocate: the counts that a target prints are its own, so
 * stdio streams (whose buffers come from malloc) are out of bounds. */
#ifndef TRUTH_H
#define TRUTH_H

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Blocks whose address ends here count as used, so that no compiler may drop
 * their allocation. */
static void *volatile truth_sink __attribute__((unused));

__attribute__((unused)) static void say(const char *text) {
    size_t left = strlen(text);
    while (left > 0) {
        ssize_t written = write(1, text, left);
        if (written < 0 && errno != EINTR)
            return;
        if (written > 0) {
            text += written;
            left -= (size_t)written;
        }
    }
}

__attribute__((unused)) static void truth(const char *key, long value) {
    char line[96];
    snprintf(line, sizeof line, "%s=%ld\n", key, value);
    say(line);
}

/* Says "ready" and waits for a byte, or for the end, of stdin. */
__attribute__((unused)) static void wait_for_go(void) {
    char byte;
    say("ready\n");
    while (read(0, &byte, 1) < 0 && errno == EINTR)
        ;
}

/* True once nobody can write to stdin any more. */
__attribute__((unused)) static int input_has_ended(void) {
    struct pollfd input = {.fd = 0, .events = 0};
    return poll(&input, 1, 0) > 0 && (input.revents & POLLHUP);
}

/* For programs that work for a given time. */
__attribute__((unused)) static long long milliseconds_now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000LL + time.tv_nsec / 1000000;
}

#endif
