/* generate.c - one prompt to standard output, token by token. */
#include "cli/chat/attach.h"
#include "cli/chat/remote.h"
#include "cli/cli.h"
#include "cli/interrupt.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/own_server.h"

#include "base/log.h"
#include "host/settings.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PROMPT_BYTES_MAX ((size_t)16 << 20)
#define EMPTY_PROMPT     "the prompt is empty; give some text, or - to read it from standard input"

/* Standard input, when the prompt is "-". */
static int read_prompt(const char *argument, struct buf *ret, struct err *e)
{
    char block[65536];
    ssize_t n;
    if (strcmp(argument, "-") != 0) {
        buf_puts(ret, argument);
        return ret->error ? err_set(e, ret->error, "the prompt is too long") : 0;
    }
    while ((n = read(STDIN_FILENO, block, sizeof(block))) > 0)
        buf_put(ret, block, (size_t)n);
    return n < 0 || ret->error ? err_set(e, -EIO, "the prompt could not be read, or is longer than 16 MiB")
                               : 0;
}

static int attach_images(struct attach *attached, const struct settings *o, struct err *e)
{
    uint32_t tokens;
    int r = 0;
    for (const char *const *image = o->answer.images; *image && r == 0; image++)
        r = attach_add(attached, false, slice_of(*image), &tokens, e);
    return r;
}

static json_t *messages_of(struct slice prompt, const struct attach *attached, const char *system)
{
    json_t *messages = json_array();
    if (system)
        json_array_append_new(messages, json_pack("{s:s, s:s}", "role", "system", "content", system));
    json_t *content = attached->count > 0 ? attach_content(attached, 0, prompt)
                                          : json_stringn(prompt.ptr ? prompt.ptr : "", prompt.len);
    json_t *user = content ? json_pack("{s:s, s:o}", "role", "user", "content", content) : NULL;
    if (user && json_array_append_new(messages, user) == 0)
        return messages;
    json_decref(messages);
    return NULL;
}

static void print_text(void *arg, bool reasoning, struct slice text)
{
    (void)reasoning;
    terminal_write(arg, text);
}

static int answer(const struct remote *remote, struct slice prompt, struct attach *attached, struct err *e)
{
    const struct settings *o = remote->settings;
    const bool raw = o->answer.raw || !remote->chats;
    struct remote_answer end;
    if (raw && o->answer.images[0])
        return err_set(e, -EINVAL, "--image needs the model's chat template, which says where images stand");
    int r = attach_images(attached, o, e);
    if (r < 0)
        return r;
    json_t *messages = raw ? NULL : messages_of(prompt, attached, o->answer.system);
    json_t *text = raw ? json_stringn(prompt.ptr ? prompt.ptr : "", prompt.len) : NULL;
    const struct remote_question q = {.messages = messages,
                                      .prompt = text,
                                      .plain = true,
                                      .seed = remote_seed(o),
                                      .stopped = interrupt_ends_answer,
                                      .text = print_text,
                                      .arg = stdout};
    r = messages || text ? remote_ask(remote, &q, &end, e)
                         : err_set(e, -EINVAL, "the prompt is not valid UTF-8 text");
    json_decref(messages);
    json_decref(text);
    return r;
}

static int generate(const struct remote *remote, struct err *e)
{
    const struct settings *o = remote->settings;
    struct attach attached;
    struct buf prompt;
    buf_init(&prompt, PROMPT_BYTES_MAX, NULL);
    attach_init(&attached, remote, interrupt_pending);
    int r = read_prompt(o->argument, &prompt, e);
    if (r == 0 && prompt.len == 0 && !o->answer.images[0])
        r = err_set(e, -EINVAL, EMPTY_PROMPT);
    if (r == 0)
        r = answer(remote, buf_slice(&prompt), &attached, e);
    if (r == 0)
        putchar('\n');
    attach_done(&attached);
    buf_done(&prompt);
    return r;
}

static int run(const struct settings *o, struct err *e)
{
    const struct own_server_opts opts = {
        .talk = o, .no_images = !o->answer.images[0], .stopped = interrupt_pending};
    struct own_server own;
    struct remote remote = {0};
    int r = own_server_start(&opts, &own, e);
    if (r == 0) {
        remote_open_own(o, &own, &remote);
        r = generate(&remote, e);
    }
    remote_close(&remote);
    own_server_stop(&own);
    return r;
}

static int start(struct settings *o, struct err *e)
{
    if (!o->argument)
        return err_set(e, -EINVAL, "a prompt is needed; see plateau generate --help");
    if (!o->argument[0] && !o->answer.images[0])
        return err_set(e, -EINVAL, EMPTY_PROMPT);
    int r = options_log_level(o, LOG_LEVEL_WARN, e);
    if (r < 0)
        return r;
    interrupt_catch();
    return cli_status(run(o, e), e);
}

int command_generate(int argc, char **argv)
{
    return cli_run(COMMAND_GENERATE, argc, argv, start);
}
