/* launch_server.c - the kernel sends the server SIGTERM when its parent ends, also after exec(): no process
 * has to wait for it, and none stays. It has a process group of its own, so that Ctrl-C is the client's. Its
 * words go to a file without a name. bench_server.h has one that its own process asks and ends. */
#include "cli/launch_server.h"

#include "cli/admin_client.h"
#include "cli/interrupt.h"

#include "base/check.h"
#include "base/err.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define OUTPUT_BYTES 4096
#define LISTENS      "listens on "

struct launched {
    pid_t pid;
    int output; /* a file in memory: an address, and lines of errors */
};

/* In the child. */
static void become_server(const struct launched *l, pid_t parent, const char *model)
{
    const char *argv[] = {"plateau",     "serve", "--host", "127.0.0.1", "--port", "0",
                          "--log-level", "error", NULL,     NULL,        NULL};
    int none = open("/dev/null", O_RDONLY | O_CLOEXEC);
    signal(SIGINT, SIG_DFL);
    if (model) {
        argv[8] = "--";
        argv[9] = model;
    }
    if (setpgid(0, 0) == 0 && prctl(PR_SET_PDEATHSIG, SIGTERM) == 0 && getppid() == parent && none >= 0 &&
        dup2(none, STDIN_FILENO) >= 0 && dup2(l->output, STDOUT_FILENO) >= 0 &&
        dup2(l->output, STDERR_FILENO) >= 0)
        execv("/proc/self/exe", (char **)argv);
    _exit(127);
}

static int begin(struct launched *l, const char *model, struct err *e)
{
    const pid_t self = getpid();
    l->output = memfd_create("plateau-launch", MFD_CLOEXEC);
    l->pid = l->output < 0 ? -1 : fork();
    if (l->pid < 0)
        return err_set(e, -errno, "no server can be started: %s", strerror(errno));
    if (l->pid == 0)
        become_server(l, self, model);
    return 0;
}

/* The first bytes of its output. */
static void read_output(const struct launched *l, char ret[OUTPUT_BYTES])
{
    ssize_t n = pread(l->output, ret, OUTPUT_BYTES - 1, 0);
    ret[MAX_OF(n, (ssize_t)0)] = 0;
}

/* True once it has said its address. */
static bool read_address(const struct launched *l, char ret[LAUNCH_URL_BYTES])
{
    char text[OUTPUT_BYTES];
    read_output(l, text);
    const char *at = strstr(text, LISTENS);
    if (!at)
        return false;
    at += strlen(LISTENS);
    size_t len = strcspn(at, " \n");
    if (at[len] == 0 || len >= LAUNCH_URL_BYTES)
        return false;
    snprintf(ret, LAUNCH_URL_BYTES, "%.*s", (int)len, at);
    return true;
}

static int say_end(const struct launched *l, struct err *e)
{
    char text[OUTPUT_BYTES];
    read_output(l, text);
    size_t len = strlen(text);
    while (len > 0 && text[len - 1] == '\n')
        text[--len] = 0;
    const char *line = strrchr(text, '\n');
    return err_set(e, -ECHILD, "the server did not start: %s", line ? line + 1 : text);
}

static bool is_ready(const char *url)
{
    struct admin_client c = {.url = url};
    struct admin_reply reply = {0};
    struct err none;
    int r = admin_client_order(&c, "GET", "/health", &reply, &none);
    admin_reply_done(&reply);
    return r == 0;
}

int launch_server_start(const char *model, char ret[LAUNCH_URL_BYTES], struct err *e)
{
    const struct timespec pause = {.tv_nsec = 50000000};
    struct launched l;
    int r = begin(&l, model, e);
    bool listens = false;
    ret[0] = 0;
    while (r == 0 && !(listens && is_ready(ret))) {
        listens = listens || read_address(&l, ret);
        if (waitpid(l.pid, NULL, WNOHANG) == l.pid)
            r = say_end(&l, e);
        else if (interrupt_pending())
            r = -ECANCELED;
        else
            nanosleep(&pause, NULL);
    }
    if (l.output >= 0)
        close(l.output);
    return r;
}
