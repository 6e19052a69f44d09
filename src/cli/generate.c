/* generate.c - one prompt to standard output, token by token. */
#include "cli/options.h"

#include "base/charge.h"
#include "base/log.h"
#include "gen/request_memory.h"
#include "host/answer.h"
#include "cli/cli.h"
#include "cli/interrupt.h"
#include "cli/progress.h"
#include "cli/output.h"
#include "host/attach.h"
#include "host/runtime.h"
#include "host/settings.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define EMPTY_PROMPT "the prompt is empty; give some text, or - to read it from standard input"

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
        r = attach_add(attached, MEDIA_IMAGE, slice_of(*image), &tokens, e);
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

static void print_part(void *arg, const struct part *p)
{
    if (p->kind == PART_TEXT)
        terminal_write(arg, p->text);
}

static int answer(struct answerer *a, struct slice prompt, struct attach *attached, struct err *e)
{
    const struct settings *o = a->rt->settings;
    bool raw = o->answer.raw || !a->rt->served.template;
    struct question q = {.attached = attached, .raw = true, .seed = answer_seed(o)};
    struct stream_finish finish;
    if (raw && o->answer.images[0])
        return err_set(e, -EINVAL, "--image needs the model's chat template, which says where images stand");
    int r = attach_images(attached, o, e);
    if (r < 0)
        return r;
    if (raw) {
        q.attached = NULL;
        q.prompt = json_stringn(prompt.ptr ? prompt.ptr : "", prompt.len);
    } else {
        q.messages = messages_of(prompt, attached, o->answer.system);
    }
    r = q.prompt || q.messages ? answerer_run(a, &q, print_part, stdout, &finish, e)
                               : err_set(e, -EINVAL, "the prompt is not valid UTF-8 text");
    json_decref(q.messages);
    json_decref(q.prompt);
    return r;
}

static int generate(struct runtime *rt, struct err *e)
{
    struct charge charge = account_charge(rt->text);
    struct answerer a;
    struct request_memory memory; /* memory of the prompt's JSON */
    struct attach attached;
    struct buf prompt;
    buf_init(&prompt, ANSWER_PROMPT_BYTES_MAX, &charge);
    request_memory_init(&memory, rt->text, 4 * ANSWER_PROMPT_BYTES_MAX);
    request_memory_enter(&memory);
    attach_init(&attached, rt, interrupt_pending);
    int r = answerer_init(&a, rt, interrupt_ends_answer, e);
    if (r == 0)
        r = read_prompt(rt->settings->argument, &prompt, e);
    if (r == 0 && prompt.len == 0 && !rt->settings->answer.images[0])
        r = err_set(e, -EINVAL, EMPTY_PROMPT);
    if (r == 0)
        r = answer(&a, buf_slice(&prompt), &attached, e);
    if (r == 0)
        putchar('\n');
    answerer_done(&a);
    attach_done(&attached);
    request_memory_enter(NULL);
    request_memory_done(&memory);
    buf_done(&prompt);
    return r;
}

static int run(const struct settings *o, struct err *e)
{
    struct runtime rt;
    int r = runtime_open(
        o, &(struct runtime_opts){.seqs = 1, .queue = 1, .looks = o->answer.images[0] != NULL}, &rt, e);
    if (r < 0)
        return r;
    rt.needs_tokenizer = true;
    r = progress_load(&rt, e);
    if (r == 0)
        r = generate(&rt, e);
    runtime_close(&rt);
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
