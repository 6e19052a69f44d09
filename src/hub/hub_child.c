/* hub_child.c - posix_spawn of this program's own file, which also works after the file was replaced. */
#include "hub/hub_child.h"

#include "base/check.h"
#include "base/slice.h"
#include "base/threads/spawn_attributes.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define NICE          10
#define VARIABLES_MAX 64
/* A sanitizer's shadow memory counts as data, of which it maps terabytes. */
#if defined(__has_feature)
#define DATA_LIMITED (!__has_feature(address_sanitizer) && !__has_feature(thread_sanitizer))
#else
#define DATA_LIMITED 1
#endif

extern char **environ;

/* ---- environment ---- */

static bool is_passed(const char *variable)
{
    static const char *const heads[] =
        {"HF_",           "HOME=",           "XDG_CACHE_HOME=",
         "TMPDIR=",       "PATH=",           "SSL_CERT_FILE=",
         "SSL_CERT_DIR=", "LANG=",           "https_proxy=",
         "HTTPS_PROXY=",  "http_proxy=",     "all_proxy=",
         "ALL_PROXY=",    "no_proxy=",       "NO_PROXY=",
         "ASAN_OPTIONS=", "LD_LIBRARY_PATH=" /* it is this program again, and needs the same libraries */};
    for (size_t i = 0; i < COUNT_OF(heads); i++)
        if (strncmp(variable, heads[i], strlen(heads[i])) == 0)
            return true;
    return false;
}

static void choose_environment(char *ret[VARIABLES_MAX + 2])
{
    size_t count = 0;
    for (char **v = environ; *v && count < VARIABLES_MAX; v++)
        if (is_passed(*v))
            ret[count++] = *v;
    /* The allocator's thread would have a stack of RLIMIT_STACK, which counts as data. */
    ret[count++] = (char *)"MALLOC_CONF=background_thread:false";
    ret[count] = NULL;
}

static int set_files(posix_spawn_file_actions_t *f, int out)
{
    int r = posix_spawn_file_actions_addopen(f, 0, "/dev/null", O_RDONLY, 0);
    if (r == 0)
        r = posix_spawn_file_actions_adddup2(f, out, 1);
    if (r == 0)
        r = posix_spawn_file_actions_adddup2(f, out, 2);
    return r ? r : posix_spawn_file_actions_addclosefrom_np(f, 3);
}

static int spawn(const struct hub_child_opts *o, int out, pid_t *ret)
{
    char ceiling[32];
    const char *argv[] = {"plateau", "pull", o->model, "--json", "--memory-limit", ceiling, "--anyway", NULL};
    char *environment[VARIABLES_MAX + 2];
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_t files;
    snprintf(ceiling, sizeof(ceiling), "%llu", (ull)o->ceiling_bytes);
    if (!o->anyway)
        argv[6] = NULL;
    choose_environment(environment);
    posix_spawnattr_init(&attributes);
    posix_spawn_file_actions_init(&files);
    int r = spawn_attributes_set(&attributes);
    if (r == 0)
        r = set_files(&files, out);
    if (r == 0)
        r = posix_spawn(ret, "/proc/self/exe", &files, &attributes, (char *const *)argv, environment);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
    return -r;
}

/* Until these are set only its loader has run, and not a byte of the hub has come. */
static void limit(pid_t pid)
{
    struct rlimit data = {HUB_CHILD_BYTES, HUB_CHILD_BYTES}, core = {0, 0};
    if (DATA_LIMITED)
        prlimit(pid, RLIMIT_DATA, &data, NULL);
    prlimit(pid, RLIMIT_CORE, &core, NULL);
    setpriority(PRIO_PROCESS, (id_t)pid, NICE);
}

int hub_child_start(const struct hub_child_opts *o, struct hub_child *ret)
{
    int out[2];
    *ret = (struct hub_child){.pidfd = -1, .out = -1};
    if (pipe2(out, O_CLOEXEC) < 0)
        return -errno;
    int r = spawn(o, out[1], &ret->pid);
    close(out[1]);
    if (r < 0) {
        close(out[0]);
        ret->pid = 0;
        return r;
    }
    limit(ret->pid);
    fcntl(out[0], F_SETFL, O_NONBLOCK);
    ret->out = out[0];
    ret->pidfd = (int)syscall(SYS_pidfd_open, ret->pid, 0);
    if (ret->pidfd >= 0)
        return 0;
    r = -errno;
    hub_child_end(ret, NULL);
    return r;
}

/* ---- events ---- */

/* Keeps a line of the loader, the allocator, or the system's libraries: the hub's names may be in it. */
static void keep_said(struct hub_child *c)
{
    size_t len = MIN_OF(c->len, sizeof(c->said) - 1);
    for (size_t i = 0; i < len; i++)
        c->said[i] = c->line[i] >= ' ' && c->line[i] <= '~' ? c->line[i] : '?';
    c->said[len] = 0;
}

static void take_line(struct hub_child *c, void (*event)(void *arg, const json_t *e), void *arg)
{
    json_t *e = c->skips ? NULL : json_loadb(c->line, c->len, JSON_REJECT_DUPLICATES, NULL);
    if (json_is_object(e))
        event(arg, e);
    else if (!c->skips && c->len > 0)
        keep_said(c);
    json_decref(e);
    c->len = 0;
    c->skips = false;
}

bool hub_child_read(struct hub_child *c, void (*event)(void *arg, const json_t *e), void *arg)
{
    char bytes[4096];
    for (;;) {
        ssize_t n = c->out < 0 ? 0 : read(c->out, bytes, sizeof(bytes));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 && errno == EAGAIN;
        for (ssize_t i = 0; i < n; i++) {
            if (bytes[i] == '\n')
                take_line(c, event, arg);
            else if (c->len == sizeof(c->line))
                c->skips = true;
            else
                c->line[c->len++] = bytes[i];
        }
    }
}

/* ---- the end ---- */

void hub_child_stop(const struct hub_child *c)
{
    if (c->pid > 0)
        kill(c->pid, SIGINT);
}

static void say_end(const struct hub_child *c, int status, struct err *ret)
{
    if (WIFSIGNALED(status))
        err_set(ret, -EIO, "its process ended early, by signal %d (%s): it may lack memory", WTERMSIG(status),
                sigabbrev_np(WTERMSIG(status)));
    else if (c->said[0])
        err_set(ret, -EIO, "its process ended early, with status %d: %s", WEXITSTATUS(status), c->said);
    else
        err_set(ret, -EIO, "its process ended early, with status %d", WEXITSTATUS(status));
}

bool hub_child_end(struct hub_child *c, struct err *why)
{
    int status = -1;
    if (c->pid <= 0)
        return false;
    kill(-c->pid, SIGKILL); /* nothing to one that has ended */
    while (waitpid(c->pid, &status, 0) < 0 && errno == EINTR)
        ;
    say_end(c, status, why);
    if (c->out >= 0)
        close(c->out);
    if (c->pidfd >= 0)
        close(c->pidfd);
    *c = (struct hub_child){.pidfd = -1, .out = -1};
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}
