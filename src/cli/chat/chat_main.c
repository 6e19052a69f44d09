/* chat_main.c - the command chat: loads a model, then reads line after line until the end. */
#include "cli/chat/chat.h"
#include "cli/chat/chat_screen.h"
#include "cli/chat/first_question.h"
#include "cli/chat/line_input.h"
#include "cli/chat/remote.h"
#include "cli/cli.h"
#include "cli/interrupt.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/progress.h"

#include "base/err.h"
#include "base/log.h"
#include "host/models/model_shipped.h"
#include "host/runtime.h"
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

static void greet(const struct chat_source *from, struct chat_screen *screen)
{
    char context[48] = "";
    if (from->context)
        snprintf(context, sizeof(context), ", context of %u tokens", from->context);
    if (from->remote && !from->settings->url)
        chat_screen_note(screen, "The server at %s has the model; --local loads it here.",
                         remote_where(from->remote));
    const char *id = from->remote ? from->remote->id : from->rt->model_id;
    chat_screen_note(screen,
                     "Plateau " PLATEAU_VERSION ", %s%s. /help lists commands. Ctrl-C stops an answer.", id,
                     context);
    tell_model(id, screen);
}

static int talk(const struct chat_source *from, struct chat_screen *screen, struct err *e)
{
    struct charge charge = account_charge(from->text);
    struct line_input_opts opts = {.terminal = screen->terminal,
                                   .colours = screen->colours,
                                   .history = from->settings->history,
                                   .bytes_max = CHAT_MESSAGE_BYTES_MAX,
                                   .charge = &charge};
    struct line_input *in;
    struct chat c;
    int r = line_input_create(&opts, &in);
    if (r < 0)
        return err_set(e, r, "no memory for the line editor");
    r = chat_open(&c, from, screen, e);
    if (r == 0) {
        if (screen->terminal)
            greet(from, screen);
        r = converse(&c, in);
        /* On a terminal the failure has been shown; a script gets the exit status. */
        if (r == 0 && c.failed && !screen->terminal)
            r = 1;
        chat_close(&c);
    }
    line_input_free(in);
    return r;
}

/* --- the command --- */

/* With a model that a server has. The ledger bounds what the conversation takes here. */
static int run_remote(const struct remote *remote, struct chat_screen *screen, struct err *e)
{
    struct chat_source from = {.settings = remote->settings, .remote = remote, .context = remote->context};
    int r = ledger_create(2 * CHAT_CONVERSATION_BYTES_MAX, &from.ledger);
    if (r == 0)
        r = accounts_open(ledger_root(from.ledger), ACCOUNT_TEXT, 2 * CHAT_CONVERSATION_BYTES_MAX,
                          &from.text);
    r = r < 0 ? err_set(e, r, "no memory for a conversation") : talk(&from, screen, e);
    account_close(from.text);
    ledger_free(from.ledger);
    return r;
}

/* An exit status, or an error before the conversation. */
static int run_here(const struct settings *o, struct chat_screen *screen, struct err *e)
{
    struct runtime rt;
    int r = runtime_open(o, &(struct runtime_opts){.seqs = 1, .queue = 1, .looks = true}, &rt, e);
    if (r < 0)
        return r;
    rt.needs_tokenizer = true;
    rt.needs_template = true;
    r = progress_load(&rt, e);
    const struct chat_source from = {.settings = o,
                                     .rt = &rt,
                                     .ledger = rt.ledger,
                                     .text = rt.text,
                                     .context = rt.planning.plan.max_model_len};
    if (r == 0)
        r = talk(&from, screen, e);
    runtime_close(&rt);
    return r;
}

static int run(struct settings *o, struct err *e)
{
    char starter[HUB_PATH_BYTES];
    struct remote remote = {0};
    struct chat_screen screen;
    chat_screen_init(&screen, o->hide_reasoning);
    int r = o->url ? remote_open(o, &remote, e) : 0;
    cli_hide_secrets();
    if (r == 0 && (o->url || remote_find(o, &remote))) {
        r = run_remote(&remote, &screen, e);
    } else if (r == 0) {
        if (!o->models.model && model_shipped_starter(starter))
            o->models.model = starter;
        r = run_here(o, &screen, e);
    }
    remote_close(&remote);
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
