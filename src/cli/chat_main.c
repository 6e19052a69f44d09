/* chat_main.c - the command chat: loads a model, then reads line after line until the end. */
#include "cli/chat.h"
#include "cli/cli.h"
#include "cli/interrupt.h"
#include "cli/line_input.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "host/model_place.h"

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

/* Of a model that was not named. */
static void tell_model(const struct runtime *rt, struct chat_screen *screen)
{
    char starter[HUB_PATH_BYTES];
    if (!rt->settings->models.model)
        chat_screen_note(screen,
                         "The bundled model has 30 million parameters and knows Unix commands. Try: What "
                         "does mkdir do?  Who are you?");
    else if (model_place_starter(starter) && strcmp(starter, rt->model_dir) == 0)
        chat_screen_note(screen, "SmolLM2 has 135 million parameters. Try: How do I list files in a "
                                 "directory on Linux?");
}

static void greet(const struct runtime *rt, struct chat_screen *screen)
{
    chat_screen_note(screen, "Plateau " PLATEAU_VERSION ", %s, context of %u tokens. /help lists commands.",
                     rt->model_id, rt->planning.plan.max_model_len);
    tell_model(rt, screen);
}

static int talk(struct runtime *rt, struct chat_screen *screen, struct err *e)
{
    struct charge charge = account_charge(rt->text);
    struct line_input_opts opts = {.terminal = screen->terminal,
                                   .colours = screen->colours,
                                   .history = rt->settings->history,
                                   .bytes_max = CHAT_MESSAGE_BYTES_MAX,
                                   .charge = &charge};
    struct line_input *in;
    struct chat c;
    int r = line_input_create(&opts, &in);
    if (r < 0)
        return err_set(e, r, "no memory for the line editor");
    r = chat_open(&c, rt, screen, e);
    if (r == 0) {
        if (screen->terminal)
            greet(rt, screen);
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

/* An exit status, or an error before the conversation. */
static int run(const struct settings *o, struct err *e)
{
    struct runtime rt;
    struct chat_screen screen;
    chat_screen_init(&screen, o->hide_reasoning);
    int r = runtime_open(o, &(struct runtime_opts){.seqs = 1, .queue = 1, .looks = true}, &rt, e);
    if (r < 0)
        return r;
    rt.needs_tokenizer = true;
    rt.needs_template = true;
    r = progress_load(&rt, e);
    if (r == 0)
        r = talk(&rt, &screen, e);
    runtime_close(&rt);
    return r;
}

static int start(struct settings *o, struct err *e)
{
    char starter[HUB_PATH_BYTES];
    if (!o->models.model && model_place_starter(starter))
        o->models.model = starter;
    int r = options_log_level(o, LOG_LEVEL_WARN, e);
    if (r < 0)
        return r;
    interrupt_catch();
    return cli_status(run(o, e), e);
}

int command_chat(int argc, char **argv)
{
    return cli_run(COMMAND_CHAT, argc, argv, start);
}
