/* bench_server.c - a process instead of an engine in this one: what is measured is then what a client of a
 * server sees, with the same requests in both ways. */
#include "cli/bench/bench_server.h"

#include "base/hex.h"
#include "base/rng.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static void draw_key(char ret[65])
{
    uint8_t bytes[32];
    rng_secret(bytes, sizeof(bytes));
    hex_text(bytes, sizeof(bytes), ret);
}

static int spawn(const char *model, int out, pid_t *ret)
{
    const char *argv[] = {"plateau", "serve", "--host", "127.0.0.1", "--port", "0", model, NULL};
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    int r = posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    if (r == 0)
        r = posix_spawn_file_actions_adddup2(&files, out, 1);
    if (r == 0)
        r = posix_spawn(ret, "/proc/self/exe", &files, NULL, (char *const *)argv, environ);
    posix_spawn_file_actions_destroy(&files);
    return -r;
}

/* "http://127.0.0.1:PORT" of its first line. False: its output ended. */
static bool read_address(struct bench_server *s)
{
    char line[1024];
    size_t len = 0;
    while (len < sizeof(line) - 1 && (len == 0 || line[len - 1] != '\n')) {
        ssize_t n = read(s->out, line + len, 1);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        len++;
    }
    line[len] = 0;
    unsigned port = 0;
    const char *at = strstr(line, "http://127.0.0.1:");
    if (!at || sscanf(at, "http://127.0.0.1:%u", &port) != 1)
        return false;
    snprintf(s->url, sizeof(s->url), "http://127.0.0.1:%u", port);
    return true;
}

int bench_server_start(const char *model, struct bench_server *ret, struct err *e)
{
    int out[2];
    *ret = (struct bench_server){.out = -1};
    draw_key(ret->key);
    if (pipe2(out, O_CLOEXEC) < 0)
        return err_set(e, -errno, "no pipe to a server: %s", strerror(errno));
    ret->out = out[0];
    setenv("PLATEAU_ADMIN_KEY", ret->key, 1);
    setenv("PLATEAU_LOG_LEVEL", "warn", 0);
    int r = spawn(model, out[1], &ret->pid);
    unsetenv("PLATEAU_ADMIN_KEY");
    close(out[1]);
    if (r < 0) {
        ret->pid = 0;
        r = err_set(e, r, "a server could not be started: %s", strerror(-r));
    } else if (!read_address(ret)) {
        r = err_set(e, -ECHILD, "the server of the measurement did not start");
    }
    if (r < 0)
        bench_server_stop(ret);
    return r;
}

bool bench_server_is_gone(struct bench_server *s)
{
    if (s->pid > 0 && waitpid(s->pid, NULL, WNOHANG) == s->pid)
        s->pid = 0;
    return s->pid == 0;
}

void bench_server_stop(struct bench_server *s)
{
    if (s->pid > 0) {
        kill(s->pid, SIGTERM);
        while (waitpid(s->pid, NULL, 0) < 0 && errno == EINTR)
            ;
        close(s->out);
    }
    s->pid = 0;
}
