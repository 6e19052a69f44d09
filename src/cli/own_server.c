/* own_server.c - a fork without exec(): the program is loaded already, and the child takes the settings as
 * they are. It reports over a pipe: how far the load is, that it serves, or what ended it. Only the parent
 * writes to the terminal. PR_SET_PDEATHSIG ends the child however the parent ends. A server for one
 * conversation listens at an abstract socket, so nothing of it stays, and SIGKILL is its end. */
#include "cli/own_server.h"

#include "cli/options.h"
#include "cli/progress.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/hex.h"
#include "host/models/catalog.h"
#include "host/server.h"
#include "host/settings_table.h"
#include "registry/registry.h"
#include "model/model.h"

#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <stdnoreturn.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOOK_MS       50 /* how long a stop may go unseen */
#define END_LOOK_MS   5
#define END_LOOKS     200
#define PROGRESS_NS   (50 * NS_PER_MS)
#define CONNECTIONS   8
#define QUEUE         2  /* a stopped answer may still leave while the next request comes */
#define MEDIA_PARTS   64 /* images and videos of a conversation */
#define TOKENS_MAX    10000000
#define TEXT_BYTES    ((uint64_t)16 << 20)
#define BODY_BYTES    ((size_t)512 << 20)
#define SLOW_READER_S 86400 /* a pager may wait for its user */

/* Written at once, because it is shorter than PIPE_BUF. */
struct report {
    enum { REPORT_PROGRESS, REPORT_SERVES, REPORT_FAILED } kind;
    int error;     /* REPORT_FAILED */
    uint16_t port; /* REPORT_SERVES, and of its first model: */
    uint32_t context;
    bool chats, text_only;
    uint64_t done, total; /* REPORT_PROGRESS */
    struct err text;      /* why it failed, or the model's id */
};

/* ---- the child ---- */

struct child {
    const struct own_server_opts *opts;
    const char *key;
    int reports, listens; /* listens: a socket that does; -1: it opens a port */
    struct server server;
    char bundled[CATALOG_PATH_BYTES];
    int changes, signals; /* descriptors of changes of its models, and of SIGTERM */
    bool told;
    uint64_t progress_ns;
};

static void tell(const struct child *c, const struct report *r)
{
    while (write(c->reports, r, sizeof(*r)) < 0 && errno == EINTR)
        ;
}

/* The options of the command line, and for the rest what suits one conversation. */
static int read_talk(struct child *c, struct settings *ret, struct err *e)
{
    int r = settings_defaults(ret, e);
    if (r < 0)
        return r;
    settings_take(COMMAND_TALK, c->opts->talk, ret);
    ret->keys = (struct key_settings){.allow_open = false};
    if (!ret->models.model && (r = catalog_bundled(c->bundled, e)) < 0)
        return r;
    ret->models.named[0] = ret->models.model ? ret->models.model : c->bundled;
    ret->log_level = ret->log_level ? ret->log_level : "warn";
    ret->listeners.admin[0] = "none";
    ret->http.listen_fd = c->listens;
    ret->http.listener = API_LISTENER_SOCKET;
    ret->http.own_user_only = true;
    ret->http.connections_max = CONNECTIONS;
    ret->http.body_bytes_max = BODY_BYTES;
    ret->registry.quiet = true;
    ret->process.text_limit = TEXT_BYTES;
    ret->process.response_store = ret->process.conversation_store = 0;
    if (c->opts->no_images)
        ret->model.image_pixels_max = 0;
    ret->model.compaction_reserve = 0;
    ret->model.engine.max_num_seqs = 1;
    ret->model.engine.max_queue = QUEUE;
    ret->api.prep_threads = 1;
    ret->api.live.requests_max = CONNECTIONS;
    ret->api.live.max_tokens_default = TOKENS_MAX;
    ret->api.live.slow_client_s = SLOW_READER_S;
    ret->api.media.thread_count = 1;
    ret->api.media.parts_max = MEDIA_PARTS;
    ret->api.media.allow_remote = true;
    ret->api.media.dir = "/"; /* the user of the terminal may name any file that the program may read */
    return 0;
}

static int read_serve(struct child *c, struct settings *ret, struct err *e)
{
    char *argv[] = {(char *)"serve", (char *)"--host", (char *)"127.0.0.1",    (char *)"--port",
                    (char *)"0",     (char *)"--",     (char *)c->opts->model, NULL};
    size_t key = 0;
    int r = options_parse(COMMAND_SERVE, c->opts->model ? 7 : 5, argv, ret, e);
    while (key < SETTINGS_KEYS_MAX - 1 && ret->keys.admin_keys[key])
        key++;
    ret->keys.admin_keys[key] = c->key;
    return r;
}

static int read_settings(void *arg, struct settings *ret, struct err *e)
{
    struct child *c = arg;
    return c->opts->talk ? read_talk(c, ret, e) : read_serve(c, ret, e);
}

/* On the loading thread; the loads of the start run one after the other. */
static void on_progress(void *arg, uint32_t index, uint64_t done, uint64_t total)
{
    struct child *c = arg;
    struct pollfd p = {.fd = c->reports, .events = POLLOUT};
    struct report r = {.kind = REPORT_PROGRESS, .done = done, .total = total};
    uint64_t now = clock_now_ns();
    if (!c->server.models.list[index].preload || (now < c->progress_ns + PROGRESS_NS && done < total))
        return;
    c->progress_ns = now;
    snprintf(r.text.text, sizeof(r.text.text), "%s", c->server.models.list[index].id);
    if (poll(&p, 1, 0) == 1)
        tell(c, &r);
}

/* Any thread. */
static void on_change(void *arg)
{
    const struct child *c = arg;
    eventfd_write(c->changes, 1);
}

static void describe(const struct child *c, struct report *ret)
{
    struct model_lease look = {.registry = NULL};
    if (registry_peek(c->server.registry, 0, &look) < 0)
        return;
    snprintf(ret->text.text, sizeof(ret->text.text), "%s", look.model->id);
    ret->context = look.model->max_model_len;
    ret->chats = look.model->template != NULL;
    ret->text_only = !look.model->shape->vision.present;
    registry_release_peek(&look);
}

/* Network thread. A failure ends the server, and is told then. */
static void look_at_start(void *arg, int fd)
{
    struct child *c = arg;
    struct registry_failure why;
    struct report r = {.kind = REPORT_SERVES, .port = http_server_port(c->server.http)};
    uint32_t index;
    eventfd_t changes;
    eventfd_read(fd, &changes);
    if (c->told || registry_started(c->server.registry, &index, &why) != 0)
        return;
    c->told = true;
    describe(c, &r);
    tell(c, &r);
}

static void on_signal(void *arg, int fd)
{
    struct child *c = arg;
    struct signalfd_siginfo info;
    if (read(fd, &info, sizeof(info)) == sizeof(info))
        server_stop(&c->server);
}

static int watch(struct child *c, struct err *e)
{
    sigset_t end;
    sigemptyset(&end);
    sigaddset(&end, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &end, NULL);
    c->signals = signalfd(-1, &end, SFD_CLOEXEC | SFD_NONBLOCK);
    c->changes = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
    int r = c->signals < 0 || c->changes < 0 ? -errno : 0;
    return r < 0 ? err_set(e, r, "no descriptors for a server: %s", strerror(-r)) : 0;
}

static void prepare_models(struct child *c)
{
    struct models *m = &c->server.models;
    for (uint32_t i = 0; c->opts->talk && i < m->count; i++) {
        m->list[i].needs_tokenizer = true;
        m->list[i].needs_template = c->opts->needs_template;
        m->list[i].greedy = true;
    }
}

static int run(struct child *c, struct err *e)
{
    struct server *s = &c->server;
    struct registry_failure why;
    uint32_t index;
    int r = live_open(&s->live, &(struct live_source){read_settings, c}, e);
    if (r == 0)
        r = server_prepare(s, e);
    if (r == 0)
        r = watch(c, e);
    if (r < 0)
        return r;
    prepare_models(c);
    r = server_open(s, e);
    if (r == 0)
        r = http_server_watch(s->http, c->changes, look_at_start, c);
    if (r == 0)
        r = http_server_watch(s->http, c->signals, on_signal, c);
    if (r == 0)
        r = server_run(s, e);
    if (r == 0 && server_failed(s) && (r = registry_started(s->registry, &index, &why)) < 0)
        *e = why.e;
    return r;
}

/* Standard input is the parent's. */
static bool take_place(const struct own_server_opts *o, pid_t parent)
{
    const int none = open("/dev/null", O_RDWR | O_CLOEXEC);
    signal(SIGINT, o->outlives_exec ? SIG_DFL : SIG_IGN);
    signal(SIGALRM, SIG_DFL);
    unsetenv("NOTIFY_SOCKET");
    if (o->log_level)
        setenv("PLATEAU_LOG_LEVEL", o->log_level, 0);
    return none >= 0 && dup2(none, STDIN_FILENO) >= 0 && dup2(none, STDOUT_FILENO) >= 0 &&
           (!o->outlives_exec || (dup2(none, STDERR_FILENO) >= 0 && setpgid(0, 0) == 0)) &&
           prctl(PR_SET_PDEATHSIG, o->talk ? SIGKILL : SIGTERM) == 0 && getppid() == parent;
}

static noreturn void be_server(struct child *c, pid_t parent)
{
    struct report failed = {.kind = REPORT_FAILED, .error = -EIO};
    if (!take_place(c->opts, parent))
        _exit(1);
    server_init(&c->server);
    c->server.progress = on_progress;
    c->server.changed = on_change;
    c->server.arg = c;
    const int r = run(c, &failed.text);
    if (r < 0 && !c->told) {
        failed.error = r;
        tell(c, &failed);
    }
    if (!c->opts->talk)
        server_close(&c->server);
    _exit(r < 0);
}

/* ---- the parent ---- */

/* A socket without a file, which the kernel forgets with its last descriptor. */
static int listen_privately(struct own_server *s, int *ret)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    char name[65];
    hex_secret(32, name);
    snprintf(s->socket, sizeof(s->socket), "@plateau-%.32s", name);
    memcpy(at.sun_path + 1, s->socket + 1, strlen(s->socket + 1));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(s->socket));
    if (fd < 0 || bind(fd, (const struct sockaddr *)&at, len) < 0 || listen(fd, CONNECTIONS) < 0) {
        int r = -errno;
        if (fd >= 0)
            close(fd);
        return r;
    }
    *ret = fd;
    return 0;
}

static int begin(const struct own_server_opts *o, struct own_server *s)
{
    int pipe[2], listens = -1, r = 0;
    if (pipe2(pipe, O_CLOEXEC) < 0)
        return -errno;
    s->reports = pipe[0];
    hex_secret(32, s->key);
    if (o->talk)
        r = listen_privately(s, &listens);
    fflush(NULL);
    const pid_t parent = getpid();
    s->pid = r == 0 ? fork() : -1;
    if (r == 0 && s->pid < 0)
        r = -errno;
    if (s->pid == 0) {
        static struct child c;
        close(pipe[0]);
        c = (struct child){.opts = o, .key = s->key, .reports = pipe[1], .listens = listens};
        be_server(&c, parent);
    }
    close(pipe[1]);
    if (listens >= 0)
        close(listens);
    s->pid = r < 0 ? 0 : s->pid;
    return r;
}

static int say_end(int status, struct err *e)
{
    if (WIFSIGNALED(status))
        return err_set(e, -ECHILD, "the server's process ended by signal %d (%s)%s", WTERMSIG(status),
                       sigabbrev_np(WTERMSIG(status)),
                       WTERMSIG(status) == SIGKILL ? ": it may lack memory" : "");
    return err_set(e, -ECHILD, "the server's process ended with status %d", WEXITSTATUS(status));
}

static void forget(struct own_server *s)
{
    close(s->reports);
    explicit_bzero(s, sizeof(*s));
}

/* Its end, with the status that waitpid() says. */
static int await_end(struct own_server *s, struct err *e)
{
    int status = 0;
    while (waitpid(s->pid, &status, 0) < 0 && errno == EINTR)
        ;
    forget(s);
    return say_end(status, e);
}

/* 0: it serves. */
static int follow(struct own_server *s, bool (*stopped)(void), struct progress *p, struct report *r,
                  struct err *e)
{
    for (;;) {
        struct pollfd look = {.fd = s->reports, .events = POLLIN};
        if (stopped && stopped())
            return -ECANCELED;
        if (poll(&look, 1, LOOK_MS) <= 0)
            continue;
        ssize_t n = read(s->reports, r, sizeof(*r));
        if (n < 0 && errno == EINTR)
            continue;
        if (n != sizeof(*r))
            return await_end(s, e);
        if (r->kind == REPORT_SERVES)
            return 0;
        if (r->kind == REPORT_FAILED)
            return err_set(e, r->error, "%s", r->text.text);
        if (!p->what)
            progress_init(p, r->text.text, "Loading");
        progress_show(p, r->done, r->total);
    }
}

int own_server_start(const struct own_server_opts *o, struct own_server *ret, struct err *e)
{
    struct progress p = {.what = NULL};
    struct report report;
    *ret = (struct own_server){.reports = -1};
    int r = begin(o, ret);
    if (r < 0) {
        if (ret->reports >= 0)
            forget(ret);
        return err_set(e, r, "no server can be started: %s", strerror(-r));
    }
    /* While the model loads: the client's libraries read files and make tables. */
    curl_global_init(CURL_GLOBAL_DEFAULT);
    r = follow(ret, o->stopped, &p, &report, e);
    progress_done(&p);
    if (r < 0) {
        own_server_stop(ret);
        return r;
    }
    if (!o->talk)
        snprintf(ret->url, sizeof(ret->url), "http://127.0.0.1:%u", report.port);
    snprintf(ret->model, sizeof(ret->model), "%s", report.text.text);
    ret->context = report.context;
    ret->chats = report.chats;
    ret->text_only = report.text_only;
    return 0;
}

bool own_server_is_gone(struct own_server *s, struct err *e)
{
    int status, r = 0;
    for (int i = 0; s->pid > 0 && r == 0 && i < END_LOOKS; i++) {
        r = waitpid(s->pid, &status, WNOHANG);
        if (r == 0)
            poll(NULL, 0, END_LOOK_MS);
    }
    if (r <= 0)
        return s->pid <= 0;
    forget(s);
    say_end(status, e);
    return true;
}

void own_server_stop(struct own_server *s)
{
    struct err ignored;
    if (s->pid <= 0)
        return;
    kill(s->pid, s->socket[0] ? SIGKILL : SIGTERM);
    await_end(s, &ignored);
}
