/* serve.c - the command serve: signals, the terminal, and the exit status of a server (host/server.h).
 *
 * The main thread becomes the network thread. Signals are read from a descriptor there: the first SIGTERM
 * or SIGINT drains, a second one ends at once. Before it listens either ends the process, because files
 * are read on the main thread then, and a dead drive would block it. A hanging load cannot be joined:
 * everything else is closed, and the process exits beside it. */
#include "cli/chat/first_question.h"
#include "cli/cli.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/page_address.h"
#include "cli/progress.h"

#include "api/access/keyring.h"
#include "base/clock.h"
#include "base/log.h"
#include "host/models/catalog_names.h"
#include "host/server.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <stdnoreturn.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

struct serve {
    struct server server;
    int argc;
    char **argv;       /* a copy for reloads, its keys sealed: the process's own has them overwritten */
    int signals;       /* signalfd */
    bool had_terminal; /* and its hangup is not ignored (nohup) */
    struct progress progress; /* progress of the loads of the start; their threads' own */
    atomic_bool served;       /* the start is over: other loads show nothing */
};

/* --- settings --- */

static int copy_arguments(struct serve *s, int argc, char **argv)
{
    s->argv = calloc((size_t)argc + 1, sizeof(*s->argv));
    for (; s->argv && s->argc < argc; s->argc++) {
        s->argv[s->argc] = strdup(argv[s->argc]);
        if (!s->argv[s->argc])
            return -ENOMEM;
    }
    return s->argv ? 0 : -ENOMEM;
}

static void forget_argument(char *text)
{
    explicit_bzero(text, strlen(text));
    free(text);
}

static void forget_arguments(struct serve *s)
{
    for (int i = 0; i < s->argc; i++)
        forget_argument(s->argv[i]);
    free(s->argv);
}

/* Replaces the key at `value` in the argument by its sealed form. 0 or -ENOMEM. */
static int seal_argument(char **argument, const char *value)
{
    char sealed[KEYRING_SEALED_BYTES];
    if (!keyring_seal(slice_of(value), sealed))
        return 0;
    size_t head = (size_t)(value - *argument);
    char *text = malloc(head + sizeof(sealed));
    if (!text)
        return -ENOMEM;
    memcpy(text, *argument, head);
    memcpy(text + head, sealed, sizeof(sealed));
    forget_argument(*argument);
    *argument = text;
    return 0;
}

static int seal_keys(struct serve *s)
{
    int at = 1, r = 0;
    const char *value;
    while (r == 0 && (value = options_next_secret(COMMAND_SERVE, s->argc, s->argv, &at)))
        r = seal_argument(&s->argv[at - 1], value);
    return r;
}

static int read_settings(void *arg, struct settings *ret, struct err *e)
{
    const struct serve *s = arg;
    return options_parse(COMMAND_SERVE, s->argc, s->argv, ret, e);
}

static int open_settings(struct serve *s, int argc, char **argv, struct err *e)
{
    if (copy_arguments(s, argc, argv) < 0 || seal_keys(s) < 0)
        return err_set(e, -ENOMEM, "no memory for the command line");
    /* Before files of keys are read: a pipe among them may be open for long. */
    options_hide(COMMAND_SERVE, argc, argv);
    return live_open(&s->server.live, &(struct live_source){read_settings, s}, e);
}

/* --- progress --- */

/* On the loading thread; the loads of the start run one after the other. */
static void load_progress(void *arg, uint32_t index, uint64_t done, uint64_t total)
{
    struct serve *s = arg;
    const struct model_settings *m = &s->server.models.list[index];
    if (!m->preload || atomic_load(&s->served))
        return;
    if (s->progress.what != m->id)
        progress_init(&s->progress, m->id, "Loading");
    progress_show(&s->progress, done, total);
    if (done >= total)
        progress_done(&s->progress);
}

/* --- signals --- */

static bool has_terminal(void)
{
    int fd = open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

static void end(struct serve *s, uint32_t number)
{
    struct server *server = &s->server;
    atomic_store(&s->served, true);
    const struct settings *now = &server->live.now;
    LOG_INFO("stopping", "signal=%u open_requests=%u grace_s=%llu drain_s=%llu", number,
             api_requests_now(server->api),
             server->stopping ? 0 : (ull)(now->process.drain_grace_ns / NS_PER_S),
             server->stopping ? 0 : (ull)(now->registry.drain_ns / NS_PER_S));
    server_stop(server);
}

/* SIGHUP has two meanings: a request to read settings again, or the loss of the controlling terminal. */
static void on_signal(void *arg, int fd)
{
    struct serve *s = arg;
    struct signalfd_siginfo info;
    if (read(fd, &info, sizeof(info)) != sizeof(info))
        return;
    if (info.ssi_signo != SIGHUP || (s->had_terminal && !has_terminal()))
        end(s, info.ssi_signo);
    else if (!s->server.stopping)
        server_reload(&s->server);
}

/* SIGHUP waits until settings can be read again; SIGTERM and SIGINT end a start. */
static void prepare_signals(struct serve *s)
{
    sigset_t set;
    struct sigaction hangup;
    /* nohup ignores it: then the loss of the terminal has no effect. */
    sigaction(SIGHUP, NULL, &hangup);
    s->had_terminal = hangup.sa_handler != SIG_IGN && has_terminal();
    sigemptyset(&set);
    sigaddset(&set, SIGHUP);
    /* Tools that rotate logs send these by habit; the log is written to standard error only. */
    signal(SIGUSR1, SIG_IGN);
    signal(SIGUSR2, SIG_IGN);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
}

/* From here on they are read. Other threads have them blocked since they exist. */
static int catch_signals(struct serve *s, struct err *e)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    s->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return s->signals < 0 ? err_set(e, -errno, "signals cannot be read") : 0;
}

/* Signals are no longer read, and closing should take a moment: a further signal ends the process. */
static void let_signals_end(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

/* --- where it listens --- */

/* Canary knows Unix commands only. A copy of Canary has its directory's name. */
static bool is_canary(const struct model_settings *m)
{
    const char *slash = strrchr(m->dir, '/');
    return first_question_is_toy(slash ? slash + 1 : m->dir);
}

/* The first model that generates text; Canary only without another. NULL: no model does. */
static const struct model_settings *chat_model(const struct models *models)
{
    const struct model_settings *found = NULL;
    for (uint32_t i = 0; i < models->count; i++) {
        const struct model_settings *m = &models->list[i];
        if (m->planned && !m->shape.encoder && !m->shape.labels &&
            (!found || (is_canary(found) && !is_canary(m))))
            found = m;
    }
    return found;
}

/* The page's address, a question, and the way to serve another model. The own admin key stands in the address
 * on a terminal only: its reader sits at the machine. */
static void tell_first_steps(const struct server *s)
{
    const char *key = terminal_is(stdout) ? live_own_admin_key(&s->live) : NULL,
               *program = program_invocation_name;
    const struct model_settings *m = chat_model(&s->models);
    struct page_address page = page_address_of(s->live.started.http.host, http_server_port(s->http), key);
    printf("  the page    %s%s\n", page.text, key ? "" : "  (plateau open adds its key)");
    if (m)
        plain_printf(stdout, "  a question  %s chat %s, then for example: %s\n", program, m->id,
                     first_question_of(is_canary(m) ? CATALOG_BUNDLED : m->id).question);
    plain_printf(
        stdout,
        "  your model  %s pull Qwen/Qwen3-0.6B && %s serve Qwen/Qwen3-0.6B, or serve DIR, or a GGUF file\n",
        program, program);
    explicit_bzero(&page, sizeof(page));
}

static void tell_where(const struct server *s)
{
    bool v6 = strchr(s->live.started.http.host, ':') != NULL;
    printf("Plateau listens on http://%s%s%s:%u ", v6 ? "[" : "", s->live.started.http.host, v6 ? "]" : "",
           http_server_port(s->http));
    if (s->models.count == 1)
        plain_printf(stdout, "(model %s)\n", s->models.list[0].id);
    else
        printf("(%u models)\n", s->models.count);
    tell_first_steps(s);
    /* The server continues; its exit status shows it at the end. */
    if (output_flush() < 0)
        LOG_WARN("output_failed", "error=\"%s\" host=%s port=%u", strerror(output_error()),
                 s->live.started.http.host, http_server_port(s->http));
}

/* --- the command --- */

static int serve_all(struct serve *s, struct err *e)
{
    struct server *server = &s->server;
    int r = catch_signals(s, e);
    if (r == 0)
        r = server_open(server, e);
    if (r == 0 && (r = http_server_watch(server->http, s->signals, on_signal, s)) < 0)
        return err_set(e, r, "signals cannot be watched");
    if (r < 0)
        return r;
    tell_where(server);
    return server_run(server, e);
}

/* False: a load hangs. */
static bool close_all(struct serve *s)
{
    atomic_store(&s->served, true);
    let_signals_end();
    if (!server_close(&s->server))
        return false;
    progress_done(&s->progress);
    if (s->signals >= 0)
        close(s->signals);
    return true;
}

/* With a thread stuck in the kernel: exit() would free memory that it uses. */
static noreturn void leave(int status)
{
    fflush(stdout);
    fflush(stderr);
    _exit(status);
}

/* An exit status. */
static int serve(struct serve *s)
{
    struct err e = {{0}};
    bool failed = false, closed = true;
    prepare_signals(s);
    int r = server_prepare(&s->server, &e);
    if (r == 0) {
        r = serve_all(s, &e);
        failed = server_failed(&s->server);
        closed = close_all(s);
    }
    if (r < 0)
        plain_error(e.text);
    int status = r < 0 || failed ? 1 : 0;
    if (!closed)
        leave(status);
    return status;
}

int command_serve(int argc, char **argv)
{
    struct serve s = {.signals = -1};
    struct err e = {{0}};
    server_init(&s.server);
    s.server.progress = load_progress;
    s.server.arg = &s;
    int r = open_settings(&s, argc, argv, &e), status;
    options_check_environment();
    if (r < 0) {
        plain_error(e.text);
        status = 2;
    } else {
        status = cli_help(COMMAND_SERVE, &s.server.live.started) ? 0 : serve(&s);
    }
    server_done(&s.server);
    forget_arguments(&s);
    return status;
}
