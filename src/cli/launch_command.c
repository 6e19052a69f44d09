/* launch_command.c - the command launch: it becomes the client, by exec(), with settings of this session
 * alone. A server that it found goes on afterwards; one that it started ends with the client. */
#include "cli/chat/remote.h"
#include "cli/cli.h"
#include "cli/interrupt.h"
#include "cli/launch_clients.h"
#include "cli/nearest.h"
#include "cli/own_server.h"
#include "cli/page_address.h"

#include "base/check.h"
#include "base/err.h"
#include "base/slice.h"
#include "host/settings.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ARGUMENTS_MAX 1024
#define URL_BYTES     256
#define NO_KEY        "none" /* clients want a key, even where the server has none */

/* ---- which client ---- */

static int name_client(const char *name, struct err *e)
{
    struct nearest n = nearest_begin(slice_of(name ? name : ""));
    char list[128] = "";
    size_t len = 0;
    for (size_t i = 0; i < launch_client_count; i++) {
        nearest_try(&n, launch_clients[i].name);
        len +=
            (size_t)snprintf(list + len, sizeof(list) - len, "%s%s", i ? ", " : "", launch_clients[i].name);
    }
    if (!name)
        return err_set(e, -EINVAL, "launch needs a client: %s", list);
    return err_set(e, -EINVAL, "there are no settings for the client %.64s%s; there are some for %s", name,
                   nearest_question(&n, "").text, list);
}

static bool is_installed(const char *name)
{
    const char *path = getenv("PATH");
    char file[4096];
    for (const char *at = path ? path : ""; *at;) {
        size_t len = strcspn(at, ":");
        int n = snprintf(file, sizeof(file), "%.*s/%s", (int)len, at, name);
        if (len > 0 && n > 0 && (size_t)n < sizeof(file) && access(file, X_OK) == 0)
            return true;
        at += len + (at[len] == ':');
    }
    return false;
}

/* ---- which server ---- */

/* The address of a server of this machine that has the model. False: there is none. */
static bool find(const struct settings *o, char ret[URL_BYTES])
{
    struct remote r;
    struct page_address page;
    struct err e;
    if (!remote_find(o, &r))
        return false;
    bool found = true;
    if (r.client.socket[0] && (found = page_address_find(&r.client, NULL, &page, &e) == 0))
        snprintf(r.client.base, sizeof(r.client.base), "%s", page.text);
    if (found)
        snprintf(ret, URL_BYTES, "%.*s", SLICE_ARGS(slice_trim(slice_of(r.client.base), "/")));
    remote_close(&r);
    return found;
}

static int start_server(const struct settings *o, struct settings *at, char url[URL_BYTES], struct err *e)
{
    const struct own_server_opts opts = {
        .model = o->models.model, .log_level = "error", .outlives_exec = true, .stopped = interrupt_pending};
    struct own_server own;
    interrupt_catch();
    int r = own_server_start(&opts, &own, e);
    signal(SIGINT, SIG_DFL);
    at->models.model = NULL;
    if (r < 0)
        return r == -ECANCELED ? r : err_prefix(e, r, "the server did not start");
    snprintf(url, URL_BYTES, "%s", own.url);
    return 0;
}

/* `at` gets the server's address, and no model where the server was started for one. */
static int choose_server(const struct settings *o, struct settings *at, char url[URL_BYTES], struct err *e)
{
    *at = *o;
    if (o->url)
        return 0;
    at->url = url;
    if (!o->local && find(o, url))
        return 0;
    if (o->print)
        return err_set(e, -ENOENT, "no server of this machine has the model; plateau serve starts one");
    if (isatty(STDERR_FILENO))
        fputs("plateau: starting a server for this session\n", stderr);
    return start_server(o, at, url, e);
}

/* ---- the client ---- */

static void note_context(const struct launch_client *c, const struct launch_target *p)
{
    if (p->context && p->context < c->prompt_tokens)
        fprintf(stderr,
                "plateau: %s has a context of %u tokens, and %s needs about %u for its first prompt\n",
                p->model, p->context, c->name, c->prompt_tokens);
}

/* One word of a shell. */
static void print_word(const char *text)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=,@%+";
    if (*text && text[strspn(text, plain)] == 0) {
        fputs(text, stdout);
        return;
    }
    putchar('\'');
    for (; *text; text++)
        if (*text == '\'')
            fputs("'\\''", stdout);
        else
            putchar(*text);
    putchar('\'');
}

static void print(const char *const *argv, json_t *env)
{
    const char *name;
    json_t *value;
    json_object_foreach(env, name, value) {
        if (json_is_null(value)) {
            printf("unset %s\n", name);
            continue;
        }
        printf("export %s=", name);
        print_word(json_string_value(value));
        putchar('\n');
    }
    for (; *argv; argv++) {
        print_word(*argv);
        putchar(argv[1] ? ' ' : '\n');
    }
}

/* Returns only an error. */
static int become(const char *const *argv, json_t *env, struct err *e)
{
    const char *name;
    json_t *value;
    json_object_foreach(env, name, value) {
        int r = json_is_null(value) ? unsetenv(name) : setenv(name, json_string_value(value), 1);
        if (r < 0)
            return err_set(e, -errno, "no memory for the environment");
    }
    /* Ignored signals stay ignored in the client. */
    signal(SIGPIPE, SIG_DFL);
    signal(SIGXFSZ, SIG_DFL);
    execvp(argv[0], (char *const *)argv);
    return err_set(e, -errno, "%s cannot be run: %s", argv[0], strerror(errno));
}

static int run_client(const struct settings *o, const struct launch_client *c, const struct launch_target *p,
                      struct err *e)
{
    const char *argv[ARGUMENTS_MAX + 1] = {c->name};
    json_t *env = json_object(), *args = json_array(), *one;
    size_t i, n = 1;
    bool whole = true;
    int r = env && args && c->settings(p, env, args)
                ? 0
                : err_set(e, -ENOMEM, "the address, the key or the model's name is too long");
    json_array_foreach(args, i, one)
        argv[n++] = json_string_value(one);
    for (i = 0; o->rest && o->rest[i] && whole; i++) {
        whole = n < ARGUMENTS_MAX;
        if (whole)
            argv[n++] = o->rest[i];
    }
    if (r == 0 && !whole)
        r = err_set(e, -E2BIG, "a client gets at most %d arguments", ARGUMENTS_MAX);
    note_context(c, p);
    if (r == 0 && o->print)
        print(argv, env);
    else if (r == 0)
        r = become(argv, env, e);
    json_decref(env);
    json_decref(args);
    return r;
}

static int launch(const struct settings *o, const struct launch_client *c, struct err *e)
{
    char url[URL_BYTES];
    struct settings at;
    struct remote remote = {0};
    int r = choose_server(o, &at, url, e);
    if (r == 0)
        r = remote_open(&at, &remote, e);
    if (r == 0) {
        const struct launch_target p = {.url = remote.client.base,
                                        .key = remote.client.key[0] ? remote.client.key : NO_KEY,
                                        .model = remote.id,
                                        .context = remote.context};
        r = run_client(o, c, &p, e);
    }
    remote_close(&remote);
    return r;
}

/* ---- the command ---- */

static int run(struct settings *o, struct err *e)
{
    const struct launch_client *c = o->argument ? launch_client_find(o->argument) : NULL;
    if (!c)
        return name_client(o->argument, e);
    if (!o->print && !is_installed(c->name))
        return cli_status(
            err_set(e, -ENOENT, "%s is not installed: no folder of PATH has it; try: %s", c->name, c->get),
            e);
    return cli_status(launch(o, c, e), e);
}

int command_launch(int argc, char **argv)
{
    return cli_run(COMMAND_LAUNCH, argc, argv, run);
}
