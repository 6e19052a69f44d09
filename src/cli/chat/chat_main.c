/* chat_main.c - the command chat: loads a model, then reads line after line until the end. */
#include "cli/chat/chat.h"
#include "cli/chat/chat_screen.h"
#include "cli/chat/first_question.h"
#include "cli/chat/line_input.h"
#include "cli/cli.h"
#include "cli/interrupt.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/own_server.h"

#include "base/err.h"
#include "base/log.h"
#include "host/models/catalog.h"
#include "host/settings.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static void one_message(struct chat *c, struct slice line)
{
    struct err e = {{0}};
    if (chat_command(c, line))
        return;
    if (line.len && line.ptr[0] == '/')
        line = (struct slice){line.ptr + 1, line.len - 1}; /* "//" begins a message with one */
    if (line.len && chat_say(c, line, &e) < 0) {
        c->failed = true;
        c->leave = remote_is_gone(c->remote);
        chat_screen_error(c->screen, "%s.", e.text);
    }
}

/* 0, or EXIT_INTERRUPTED. */
static int converse(struct chat *c, struct line_input *in)
{
    struct slice line;
    for (bool again = false; !c->leave && !output_failed();) {
        line_input_attached(in, chat_waiting(c));
        switch (line_input_read(in, &line)) {
        case LINE_TEXT:
            again = false;
            one_message(c, line);
            /* Elsewhere than on a terminal an interrupt means the program, not one answer. */
            if (interrupt_take() && !c->screen->terminal)
                return EXIT_INTERRUPTED;
            break;
        case LINE_TOO_LONG:
            c->failed = true;
            chat_screen_error(c->screen, "A message has at most %zu MiB; this one was left out.",
                              CHAT_MESSAGE_BYTES_MAX >> 20);
            break;
        case LINE_INTERRUPTED:
            if (!c->screen->terminal)
                return EXIT_INTERRUPTED;
            putchar('\n');
            if (again)
                return 0;
            again = true;
            chat_screen_note(c->screen, "[Ctrl-C once more, Ctrl-D or /exit leaves.]");
            break;
        case LINE_END:
            if (c->screen->terminal)
                putchar('\n');
            return 0;
        }
    }
    return 0;
}

/* Suggests a question to a model that comes with the program. */
static void tell_model(const char *id, struct chat_screen *screen)
{
    const struct first_question q = first_question_of(id);
    if (q.about)
        chat_screen_note(screen, "%s Try: %s", q.about, q.question);
}

static void greet(const struct remote *r, struct chat_screen *screen)
{
    char context[48] = "";
    if (r->context)
        snprintf(context, sizeof(context), ", context of %u tokens", r->context);
    if (!r->own && !r->settings->url)
        chat_screen_note(screen, "The server at %s has the model; --local loads it here.", remote_where(r));
    chat_screen_note(screen,
                     "Plateau " PLATEAU_VERSION ", %s%s. /help lists commands. Ctrl-C stops an answer.",
                     r->id, context);
    tell_model(r->id, screen);
}

static int talk(const struct remote *remote, struct chat_screen *screen, struct err *e)
{
    struct line_input_opts opts = {.terminal = screen->terminal,
                                   .colours = screen->colours,
                                   .history = remote->settings->history,
                                   .bytes_max = CHAT_MESSAGE_BYTES_MAX};
    struct line_input *in;
    struct chat c;
    int r = line_input_create(&opts, &in);
    if (r < 0)
        return err_set(e, r, "no memory for the line editor");
    r = chat_open(&c, remote, screen, e);
    if (r == 0) {
        if (screen->terminal)
            greet(remote, screen);
        r = converse(&c, in);
        /* On a terminal the failure has been shown; a script gets the exit status. */
        if (r == 0 && c.failed && (!screen->terminal || remote_is_gone(remote)))
            r = 1;
        chat_close(&c);
    }
    line_input_free(in);
    return r;
}

/* --- the command --- */

/* A server of --url, one of this machine that has the model, or one of its own. */
static int find_server(struct settings *o, struct own_server *own, struct remote *ret, struct err *e)
{
    char starter[CATALOG_PATH_BYTES];
    int r = o->url ? remote_open(o, ret, e) : 0;
    cli_hide_secrets();
    if (r < 0 || o->url || remote_find(o, ret))
        return r;
    if (!o->models.model && catalog_starter(starter))
        o->models.model = starter;
    const struct own_server_opts opts = {.talk = o, .needs_template = true, .stopped = interrupt_pending};
    r = own_server_start(&opts, own, e);
    if (o->models.model == starter)
        o->models.model = NULL;
    if (r == 0)
        remote_open_own(o, own, ret);
    return r;
}

/* An exit status, or an error before the conversation. */
static int run(struct settings *o, struct err *e)
{
    struct own_server own = {.pid = 0};
    struct remote remote = {0};
    struct chat_screen screen;
    chat_screen_init(&screen, o->hide_reasoning);
    int r = find_server(o, &own, &remote, e);
    if (r == 0)
        r = talk(&remote, &screen, e);
    remote_close(&remote);
    own_server_stop(&own);
    return r;
}

static int start(struct settings *o, struct err *e)
{
    if (o->url && o->local)
        return err_set(e, -EINVAL, "--url is a server, and --local none: give one of them");
    int r = options_log_level(o, LOG_LEVEL_WARN, e);
    if (r < 0)
        return r;
    interrupt_catch();
    remote_note_key(o);
    return cli_status(run(o, e), e);
}

int command_chat(int argc, char **argv)
{
    return cli_run(COMMAND_CHAT, argc, argv, start);
}
