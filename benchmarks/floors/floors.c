/* What the kernel takes for the same work, with nothing in between.
 *
 * Reads one request per line and answers with one line of nanoseconds, one number per repeat:
 *
 *   spawn N        posix_spawn of `sh -c true`, waitid
 *   script N       posix_spawn of `sh FILE` where FILE says `true`, waitid
 *   term N         a group of one sleeping shell: killpg(TERM), epoll on its pidfd, waitid
 *   kill N         the same with KILL
 *   tree N         a shell and 9 sleepers: killpg(TERM), everyone reaped
 *   escapees N     the same with 2 of the 9 in sessions of their own, found and killed
 *   exit N         a newline to a shell that reads, its exit, waitid
 *   rate N W       N times `spawn`, W at a time: the total
 *
 * It is a subreaper: who loses its parent comes here.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;
static const char *shell;

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static long long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* Starts the shell as the leader of a session. `in` and `out` are its 0 and 1, or -1. */
static pid_t start(const char *option, const char *script, int in, int out) {
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_t actions;
    char *argv[] = {(char *)shell, (char *)option, (char *)script, NULL};
    if (!option[0]) {
        argv[1] = (char *)script;
        argv[2] = NULL;
    }
    pid_t pid;
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
    posix_spawn_file_actions_init(&actions);
    if (in >= 0)
        posix_spawn_file_actions_adddup2(&actions, in, 0);
    if (out >= 0)
        posix_spawn_file_actions_adddup2(&actions, out, 1);
    int error = posix_spawn(&pid, shell, &actions, &attributes, argv, environ);
    if (error) {
        errno = error;
        fail("posix_spawn");
    }
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    return pid;
}

/* The same, and waits until it has written `bytes` bytes. */
static pid_t start_ready(const char *script, int bytes) {
    int ends[2];
    char buffer[64];
    if (pipe2(ends, O_CLOEXEC))
        fail("pipe2");
    pid_t pid = start("-c", script, -1, ends[1]);
    close(ends[1]);
    while (bytes > 0) {
        ssize_t got = read(ends[0], buffer, sizeof buffer);
        if (got <= 0)
            fail("not ready");
        bytes -= (int)got;
    }
    close(ends[0]);
    return pid;
}

static void reap(pid_t pid) {
    siginfo_t info;
    if (waitid(P_PID, (id_t)pid, &info, WEXITED))
        fail("waitid");
}

static int watch(int epoll, pid_t pid) {
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    if (fd < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event))
        fail("pidfd");
    return fd;
}

static long long signal_one(int number) {
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    pid_t pid = start_ready("echo r; exec sleep 1000", 2);
    int fd = watch(epoll, pid);
    struct epoll_event event;
    long long begin = now();
    killpg(pid, number);
    while (epoll_wait(epoll, &event, 1, -1) < 1)
        ;
    reap(pid);
    long long end = now();
    close(fd);
    close(epoll);
    return end - begin;
}

static long long kill_tree(const char *script, int ready, int processes) {
    pid_t pid = start_ready(script, ready);
    char path[64], children[512];
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", pid, pid);
    long long begin = now();
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = read(fd, children, sizeof children - 1);
    close(fd);
    children[length > 0 ? length : 0] = 0;
    killpg(pid, SIGTERM);
    for (char *next = children, *end; *next; next = end) {
        pid_t child = (pid_t)strtol(next, &end, 10);
        if (end == next)
            break;
        if (getpgid(child) != pid)
            kill(child, SIGKILL);
    }
    while (processes > 0) {
        if (waitpid(-1, NULL, 0) < 0)
            fail("waitpid");
        processes--;
    }
    return now() - begin;
}

static long long until_exit(void) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC))
        fail("pipe2");
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    pid_t pid = start("-c", "read line", ends[0], -1);
    close(ends[0]);
    int fd = watch(epoll, pid);
    usleep(5000);
    struct epoll_event event;
    long long begin = now();
    if (write(ends[1], "\n", 1) != 1)
        fail("write");
    while (epoll_wait(epoll, &event, 1, -1) < 1)
        ;
    reap(pid);
    long long end = now();
    close(ends[1]);
    close(fd);
    close(epoll);
    return end - begin;
}

static long long spawn_one(const char *option, const char *script) {
    long long begin = now();
    reap(start(option, script, -1, -1));
    return now() - begin;
}

static long long rate(int total, int width) {
    long long begin = now();
    int started = 0, ended = 0;
    while (ended < total) {
        while (started < total && started - ended < width) {
            start("-c", "true", -1, -1);
            started++;
        }
        if (waitpid(-1, NULL, 0) < 0)
            fail("waitpid");
        ended++;
    }
    return now() - begin;
}

int main(int argc, char **argv) {
    char line[128], what[32];
    shell = argc > 1 ? argv[1] : "/bin/sh";
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    char file[] = "/tmp/pinfold-floor-XXXXXX";
    int fd = mkstemp(file);
    if (fd < 0 || write(fd, "true\n", 5) != 5)
        fail("script");
    close(fd);
    const char *tree = "for i in 1 2 3 4 5 6 7 8 9; do sleep 1000 & done; echo r; wait";
    const char *escapees = "for i in 1 2 3 4 5 6 7; do sleep 1000 & done; "
                           "for i in 1 2; do setsid sh -c 'echo r; exec sleep 1000' & done; "
                           "echo r; wait";
    while (fgets(line, sizeof line, stdin)) {
        int repeats = 0, width = 0;
        if (sscanf(line, "%31s %d %d", what, &repeats, &width) < 2)
            break;
        if (!strcmp(what, "rate")) {
            printf("%lld\n", rate(repeats, width));
            fflush(stdout);
            continue;
        }
        for (int i = 0; i < repeats; i++) {
            long long took;
            if (!strcmp(what, "spawn"))
                took = spawn_one("-c", "true");
            else if (!strcmp(what, "script"))
                took = spawn_one("", file);
            else if (!strcmp(what, "term"))
                took = signal_one(SIGTERM);
            else if (!strcmp(what, "kill"))
                took = signal_one(SIGKILL);
            else if (!strcmp(what, "tree"))
                took = kill_tree(tree, 2, 10);
            else if (!strcmp(what, "escapees"))
                took = kill_tree(escapees, 6, 10);
            else if (!strcmp(what, "exit"))
                took = until_exit();
            else
                return 2;
            printf(i ? " %lld" : "%lld", took);
        }
        printf("\n");
        fflush(stdout);
    }
    unlink(file);
    return 0;
}
