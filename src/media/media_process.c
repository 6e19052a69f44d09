/* media_process.c - posix_spawn: the server's memory is never copied, and the process inherits only three
 * pipes and the input.
 *
 * The server sets its limits right after the start; until then only its loader has run, which has not seen a
 * byte of the input. It leads a process group of its own, so all processes that it starts end with it. Its
 * low priority leaves a busy processor to other work. */
#include "media/media_process.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/threads/spawn_attributes.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOOK_MS      50 /* interval of checks whether to stop */
#define NICE         10
#define FILES_MAX    32
#define LIBRARIES_AS ((uint64_t)2 << 30) /* address space of its libraries; takes no memory */
#define END_NS       (5 * NS_PER_S)      /* from its last output to its end */

static void limit(pid_t pid, int what, uint64_t most)
{
    struct rlimit l = {(rlim_t)most, (rlim_t)most};
    prlimit(pid, (__rlimit_resource_t)what, &l, NULL);
}

static void limit_all(pid_t pid, const struct media_process_opts *o)
{
    uint64_t now_ns = clock_now_ns();
    uint64_t seconds = o->deadline_ns > now_ns ? (o->deadline_ns - now_ns) / NS_PER_S + 1 : 1;
    limit(pid, RLIMIT_DATA, o->memory_bytes);
    limit(pid, RLIMIT_AS, o->memory_bytes + LIBRARIES_AS);
    limit(pid, RLIMIT_CPU, seconds);
    limit(pid, RLIMIT_FSIZE, 0);
    limit(pid, RLIMIT_CORE, 0);
    limit(pid, RLIMIT_NOFILE, FILES_MAX);
    setpriority(PRIO_PROCESS, (id_t)pid, NICE);
}

static int set_files(posix_spawn_file_actions_t *f, int input, int out, int err)
{
    int r = posix_spawn_file_actions_addopen(f, 0, "/dev/null", O_RDONLY, 0);
    if (r == 0)
        r = posix_spawn_file_actions_adddup2(f, out, 1);
    if (r == 0)
        r = posix_spawn_file_actions_adddup2(f, err, 2);
    if (r == 0)
        r = posix_spawn_file_actions_adddup2(f, input, 3);
    return r == 0 ? posix_spawn_file_actions_addclosefrom_np(f, 4) : r;
}

static int spawn(const struct media_process_opts *o, int out, int err, pid_t *ret)
{
    /* Not the server's environment, which may contain its keys. */
    char path[4096];
    char *environment[] = {path, (char[]){"LC_ALL=C"}, NULL};
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_t files;
    const char *own = getenv("PATH");
    snprintf(path, sizeof(path), "PATH=%s", own ? own : "/usr/bin:/bin");
    posix_spawnattr_init(&attributes);
    posix_spawn_file_actions_init(&files);
    int r = spawn_attributes_set(&attributes);
    if (r == 0)
        r = set_files(&files, o->input, out, err);
    if (r == 0)
        r = posix_spawnp(ret, o->argv[0], &files, &attributes, (char *const *)o->argv, environment);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
    return -r;
}

static void close_pipe(int fds[2])
{
    for (int i = 0; i < 2; i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

int media_process_start(struct media_process *p, const struct media_process_opts *o)
{
    int out[2] = {-1, -1}, err[2] = {-1, -1};
    pid_t pid = -1;
    int r = pipe2(out, O_CLOEXEC) < 0 || pipe2(err, O_CLOEXEC) < 0 ? -errno : spawn(o, out[1], err[1], &pid);
    if (r < 0) {
        close_pipe(out);
        close_pipe(err);
        return r;
    }
    limit_all(pid, o);
    close(out[1]);
    close(err[1]);
    fcntl(out[0], F_SETFL, O_NONBLOCK);
    fcntl(err[0], F_SETFL, O_NONBLOCK);
    *p = (struct media_process){.pid = pid,
                                .pidfd = (int)syscall(SYS_pidfd_open, pid, 0),
                                .out = out[0],
                                .err = err[0],
                                .deadline_ns = o->deadline_ns,
                                .stop = o->stop};
    return 0;
}

/* Its stderr goes only into the log: without control characters, and at most one line. */
static void hear(struct media_process *p)
{
    char text[512];
    ssize_t n;
    while ((n = read(p->err, text, sizeof(text))) > 0)
        for (ssize_t i = 0; i < n && p->said_len < sizeof(p->said) - 1; i++) {
            char c = text[i] == '\n' ? ' ' : text[i];
            if (c >= 0x20 && c < 0x7f && c != '"')
                p->said[p->said_len++] = c;
        }
    if (n == 0) {
        close(p->err);
        p->err = -1;
    }
}

/* Waits until its output can be read. 0, -ECANCELED or -ETIMEDOUT. */
static int wait_for_output(struct media_process *p)
{
    for (;;) {
        struct pollfd fds[] = {{p->out, POLLIN, 0}, {p->err, POLLIN, 0}};
        if (atomic_load(p->stop))
            return -ECANCELED;
        if (clock_now_ns() > p->deadline_ns)
            return -ETIMEDOUT;
        if (poll(fds, COUNT_OF(fds), LOOK_MS) <= 0)
            continue;
        if (fds[1].revents)
            hear(p);
        if (fds[0].revents)
            return 0;
    }
}

int media_process_read(struct media_process *p, void *to, size_t bytes, size_t *ret)
{
    size_t len = 0;
    while (len < bytes) {
        ssize_t n = read(p->out, (char *)to + len, bytes - len);
        if (n == 0)
            break;
        if (n > 0) {
            len += (size_t)n;
            continue;
        }
        int r = errno == EAGAIN || errno == EINTR ? wait_for_output(p) : -errno;
        if (r < 0)
            return r;
    }
    *ret = len;
    return 0;
}

/* Returns whether it has ended by itself. */
static bool wait_for_end(struct media_process *p)
{
    uint64_t until_ns = MIN_OF(p->deadline_ns, clock_now_ns() + END_NS);
    for (;;) {
        struct pollfd fds[] = {{p->pidfd, POLLIN, 0}, {p->err, POLLIN, 0}};
        if (atomic_load(p->stop) || clock_now_ns() > until_ns)
            return false;
        if (poll(fds, COUNT_OF(fds), LOOK_MS) <= 0)
            continue;
        if (fds[1].revents)
            hear(p);
        if (fds[0].revents)
            return true;
    }
}

bool media_process_end(struct media_process *p)
{
    int status = -1;
    close(p->out);
    bool ended = wait_for_end(p);
    kill(-p->pid, SIGKILL);
    while (waitpid(p->pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (p->err >= 0)
        hear(p);
    if (p->err >= 0)
        close(p->err);
    if (p->pidfd >= 0)
        close(p->pidfd);
    return ended && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}
