/* chat_commands.c - one row per command of a conversation; /help reads the same rows. */
#include "cli/chat/chat.h"
#include "cli/chat/chat_screen.h"
#include "cli/help_lines.h"
#include "cli/output.h"

#include "base/bytes_text.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int help(struct chat *c, struct slice argument, struct err *e);

static int reset(struct chat *c, struct slice argument, struct err *e)
{
    (void)argument, (void)e;
    chat_reset(c);
    chat_screen_note(c->screen, "[A new conversation.]");
    return 0;
}

static int set_system(struct chat *c, struct slice argument, struct err *e)
{
    int r = chat_set_system(c, argument, e);
    if (r == 0)
        chat_screen_note(c->screen, argument.len ? "[The system message is set, from the next answer on.]"
                                                 : "[There is no system message any more.]");
    return r;
}

static int attach(struct chat *c, bool video, struct slice what, struct err *e)
{
    uint32_t tokens, waiting = chat_waiting(c);
    if (what.len == 0) {
        chat_detach(c);
        chat_screen_note(c->screen, waiting ? "[Nothing goes with the next message any more.]"
                                            : "[Nothing goes with the next message.]");
        return 0;
    }
    int r = attach_add(&c->attached, video, what, &tokens, e);
    if (r == 0 && c->screen->terminal && tokens == 0)
        chat_screen_note(c->screen, "[It goes with the next message.]");
    else if (r == 0 && c->screen->terminal)
        chat_screen_note(c->screen, "[%u tokens, with the next message.]", tokens);
    return r;
}

static int attach_image(struct chat *c, struct slice argument, struct err *e)
{
    return attach(c, false, argument, e);
}

static int attach_video(struct chat *c, struct slice argument, struct err *e)
{
    return attach(c, true, argument, e);
}

static int retry(struct chat *c, struct slice argument, struct err *e)
{
    (void)argument;
    return chat_retry(c, e);
}

/* {"messages": [...]}, as the API takes it. */
static int save(struct chat *c, struct slice argument, struct err *e)
{
    char path[4096];
    if (argument.len == 0 || argument.len >= sizeof(path))
        return err_set(e, -EINVAL, "/save needs the name of a file");
    snprintf(path, sizeof(path), "%.*s", (int)argument.len, argument.ptr);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "w");
    if (!f)
        return err_set(e, -errno, "%s cannot be made: %s", path, strerror(errno));
    json_t *all = json_pack("{s:O}", "messages", c->messages);
    int r = all ? json_dumpf(all, f, JSON_INDENT(2)) : -1;
    json_decref(all);
    r = fputc('\n', f) == EOF || r < 0 ? -1 : 0;
    if (fclose(f) != 0 || r < 0) {
        unlink(path);
        return err_set(e, -EIO, "%s could not be written", path);
    }
    chat_screen_note(c->screen, "[%zu messages are in %s.]", json_array_size(c->messages), path);
    return 0;
}

static uint64_t bytes_in(const json_t *object, const char *name)
{
    return (uint64_t)json_integer_value(json_object_get(object, name));
}

static void print_accounts(const json_t *accounts, int depth)
{
    size_t i;
    const json_t *one;
    json_array_foreach(accounts, i, one) {
        const char *name = json_string_value(json_object_get(one, "name"));
        const uint64_t used = bytes_in(one, "used_bytes");
        if (name && used)
            plain_printf(stdout, "  %*s%-*s %10s\n", 2 * depth, "", MAX_OF(24 - 2 * depth, 0), name,
                         bytes_text(used).text);
        print_accounts(json_object_get(one, "children"), depth + 1);
    }
}

static int print_memory(const struct remote *r, struct err *e)
{
    struct admin_reply memory = {0};
    int error = admin_client_order(&r->client, "GET", "/api/memory", &memory, e);
    if (error == 0) {
        const json_t *system = json_object_get(memory.json, "system");
        printf("Memory\n");
        print_accounts(json_object_get(memory.json, "accounts"), 0);
        printf("  %-24s %10s\n  %-24s %10s\n", "resident by the system",
               bytes_text(bytes_in(system, "rss_anon_bytes") + bytes_in(system, "rss_shmem_bytes")).text,
               "limit", bytes_text(bytes_in(memory.json, "limit_bytes")).text);
    }
    admin_reply_done(&memory);
    return error;
}

static int stats(struct chat *c, struct slice argument, struct err *e)
{
    const struct remote_answer *f = &c->last;
    int r = 0;
    (void)argument;
    /* A server counts with the answer's first part, and others than Plateau at its end. */
    const bool counted = f->prompt_tokens > 0 || f->completion_tokens > 0;
    if (c->answers && !counted)
        printf("Last answer\n  stopped before its tokens were counted\n");
    if (c->answers && counted) {
        double first_s = (double)f->first_ns / NS_PER_S, rest_s = (double)f->rest_ns / NS_PER_S;
        printf("Last answer\n  prompt   %u tokens in %.3f s", f->prompt_tokens, first_s);
        if (f->cached_tokens)
            printf(", %u of them cached", f->cached_tokens);
        printf("\n  answer   %u tokens in %.3f s", f->completion_tokens, rest_s);
        /* The first token comes with the prompt. Others that all arrive at once tell no speed. */
        if (f->completion_tokens > 1 && f->rest_ns >= NS_PER_MS)
            printf(", %.1f tokens/s", (f->completion_tokens - 1) / rest_s);
        printf("\n  context  %u", f->prompt_tokens + f->completion_tokens);
        printf(c->remote->context ? " of %u tokens\n" : " tokens\n", c->remote->context);
    }
    const size_t messages = json_array_size(c->messages);
    printf("Conversation\n  %zu message%s, %u answer%s since the start\n", messages, messages == 1 ? "" : "s",
           c->answers, c->answers == 1 ? "" : "s");
    if (c->remote->own)
        r = print_memory(c->remote, e);
    else
        printf("Server\n  %s\n", remote_where(c->remote));
    fflush(stdout);
    return r;
}

static int leave(struct chat *c, struct slice argument, struct err *e)
{
    (void)argument, (void)e;
    c->leave = true;
    return 0;
}

static const struct chat_command {
    const char *name, *argument; /* NULL: none */
    int (*run)(struct chat *c, struct slice argument, struct err *e);
    const char *help;
} commands[] = {
    {"help", NULL, help, "list these commands"},
    {"reset", NULL, reset, "begin a new conversation; the system message stays"},
    {"system", "TEXT", set_system, "set the system message; without TEXT remove it"},
    {"image", "FILE", attach_image,
     "attach an image (a file or an address) to the next message; without FILE drop the attachments"},
    {"video", "FILE", attach_video, "attach a video likewise"},
    {"retry", NULL, retry, "answer the last message again"},
    {"save", "FILE", save, "write the conversation to a new file, as JSON that the API takes"},
    {"stats", NULL, stats, "tokens, speed and memory"},
    {"exit", NULL, leave, "leave, as Ctrl-D does"},
};

static int help(struct chat *c, struct slice argument, struct err *e)
{
    struct help_lines l = {.f = stdout, .width = help_width(stdout)};
    (void)c, (void)argument, (void)e;
    for (size_t i = 0; i < COUNT_OF(commands); i++) {
        char usage[32];
        snprintf(usage, sizeof(usage), "/%s %s", commands[i].name,
                 commands[i].argument ? commands[i].argument : "");
        l.column = (unsigned)printf("  %-16s ", usage);
        help_words(&l, l.column, commands[i].help);
        help_line(&l, 0);
    }
    putchar('\n');
    help_paragraph(&l, "Ctrl-C stops an answer. A line that ends in \\ continues in the next one. To begin a "
                       "message with /, type two: //etc is a folder.");
    fflush(stdout);
    return 0;
}

static const struct chat_command *find(struct slice name)
{
    for (size_t i = 0; i < COUNT_OF(commands); i++)
        if (slice_eq(name, slice_of(commands[i].name)))
            return &commands[i];
    return NULL;
}

static int run_command(struct chat *c, struct slice line, struct err *e)
{
    size_t len = 1;
    while (len < line.len && line.ptr[len] != ' ' && line.ptr[len] != '\n')
        len++;
    struct slice name = slice_sub(line, 1, len - 1);
    struct slice argument = slice_trim(slice_sub(line, len, line.len), " ");
    const struct chat_command *command = find(name);
    if (!command)
        return err_set(e, -EINVAL, "there is no command /%.*s; /help lists them", (int)MIN_OF(name.len, 40u),
                       name.ptr);
    if (argument.len && !command->argument)
        return err_set(e, -EINVAL, "/%s takes no argument; /help lists the commands", command->name);
    return command->run(c, argument, e);
}

bool chat_command(struct chat *c, struct slice line)
{
    struct err e = {{0}};
    if (line.len == 0 || line.ptr[0] != '/' || (line.len > 1 && line.ptr[1] == '/'))
        return false;
    if (run_command(c, line, &e) < 0) {
        c->failed = true;
        chat_screen_error(c->screen, "%s.", e.text);
    }
    return true;
}
