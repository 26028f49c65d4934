/* enter_root ROOT PROGRAM ARGS...
 *
 * Runs PROGRAM in user, mount and pid namespaces of its own under ROOT, which
 * becomes "/" by pivot_root; prints the child's pid as seen from outside and
 * ends with the child's status. */
#define _GNU_SOURCE
#include "truth.h"

#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static void check(int result, const char *step) {
    if (result >= 0)
        return;
    dprintf(2, "enter_root: %s: %s\n", step, strerror(errno));
    exit(96);
}

static void write_file(const char *path, const char *format, long value) {
    char text[64];
    int length = snprintf(text, sizeof text, format, value);
    int file = open(path, O_WRONLY);
    check(file, path);
    check((int)write(file, text, (size_t)length), path);
    close(file);
}

static void change_root(const char *root) {
    check(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), "make / private");
    check(mount(root, root, NULL, MS_BIND, NULL), "bind the root");
    check(chdir(root), "enter the root");
    check((int)syscall(SYS_pivot_root, ".", "."), "pivot_root");
    check(umount2(".", MNT_DETACH), "leave the old root");
    check(chdir("/"), "enter /");
}

int main(int argc, char **argv) {
    if (argc < 3)
        return 64;
    long uid = getuid(), gid = getgid();
    check(unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID), "unshare");
    write_file("/proc/self/setgroups", "deny", 0);
    write_file("/proc/self/uid_map", "0 %ld 1\n", uid);
    write_file("/proc/self/gid_map", "0 %ld 1\n", gid);
    change_root(argv[1]);

    pid_t child = fork();
    check(child, "fork");
    if (child == 0) {
        execv(argv[2], argv + 2);
        check(-1, argv[2]);
    }
    truth("pid", child);
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 95;
}
