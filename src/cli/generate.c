/* generate.c - one prompt to standard output, token by token. */
#include "base/log.h"
#include "cli/answer.h"
#include "cli/cli.h"
#include "cli/help.h"
#include "cli/interrupt.h"
#include "cli/progress.h"
#include "cli/terminal.h"

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

static int attach_images(struct attach *attached, const struct options *o, struct err *e)
{
    uint32_t tokens;
    int r = 0;
    for (const char *const *image = o->images; *image && r == 0; image++)
        r = attach_add(attached, MEDIA_IMAGE, slice_of(*image), &tokens, e);
    return r;
}

static int prompt_of(struct answerer *a, struct slice prompt, struct attach *attached, struct err *e)
{
    const struct options *o = a->rt->options;
    bool raw = o->raw || !a->rt->served.template;
    if (raw && o->images[0])
        return err_set(e, -EINVAL, "--image needs the model's chat template, which says where images stand");
    if (raw)
        return answerer_prompt_raw(a, prompt, e);
    int r = attach_images(attached, o, e);
    if (r < 0)
        return r;
    json_t *messages = json_array();
    if (o->system)
        json_array_append_new(messages, json_pack("{s:s, s:s}", "role", "system", "content", o->system));
    json_t *content = attached->count > 0 ? attach_content(attached, 0, prompt)
                                          : json_stringn(prompt.ptr ? prompt.ptr : "", prompt.len);
    json_t *user = content ? json_pack("{s:s, s:o}", "role", "user", "content", content) : NULL;
    r = user ? json_array_append_new(messages, user) : -1;
    r = r < 0 ? err_set(e, -EINVAL, "the prompt is no valid UTF-8 text")
              : answerer_prompt(a, messages, attached, e);
    json_decref(messages);
    return r;
}

static void print_text(void *arg, struct slice text)
{
    terminal_write(arg, text);
}

static int generate(struct runtime *rt, struct err *e)
{
    struct charge charge = account_charge(rt->text);
    struct stream_finish finish;
    struct answerer a;
    struct attach attached;
    struct buf prompt;
    buf_init(&prompt, ANSWER_PROMPT_BYTES_MAX, &charge);
    attach_init(&attached, rt);
    int r = answerer_init(&a, rt, e);
    if (r == 0)
        r = read_prompt(rt->options->argument, &prompt, e);
    if (r == 0 && prompt.len == 0 && !rt->options->images[0])
        r = err_set(e, -EINVAL, EMPTY_PROMPT);
    if (r == 0)
        r = prompt_of(&a, buf_slice(&prompt), &attached, e);
    if (r == 0 && (r = answerer_run(&a, answer_seed(rt->options), print_text, stdout, &finish, e)) == 0)
        putchar('\n');
    answerer_done(&a);
    attach_done(&attached);
    buf_done(&prompt);
    return r;
}

static int run(const struct options *o, struct err *e)
{
    struct runtime rt;
    int r =
        runtime_open(o, &(struct runtime_opts){.seqs = 1, .queue = 1, .looks = o->images[0] != NULL}, &rt, e);
    if (r < 0)
        return r;
    rt.needs_tokenizer = true;
    r = progress_load(&rt, e);
    if (r == 0)
        r = generate(&rt, e);
    runtime_close(&rt);
    return r;
}

static int with_options(struct options *o, int argc, char **argv)
{
    struct err e = {{0}};
    int r = options_parse(COMMAND_GENERATE, argc, argv, o, &e);
    if (r == 0 && o->help) {
        help_command(COMMAND_GENERATE, stdout);
        return 0;
    }
    if (r == 0 && !o->argument)
        r = err_set(&e, -EINVAL, "a prompt is needed; see plateau generate --help");
    if (r == 0 && !o->argument[0] && !o->images[0])
        r = err_set(&e, -EINVAL, EMPTY_PROMPT);
    if (r == 0)
        r = options_log_level(o, LOG_LEVEL_WARN, &e);
    if (r < 0) {
        fprintf(stderr, "plateau: %s\n", e.text);
        return 2;
    }
    interrupt_catch();
    r = run(o, &e);
    if (r == -ECANCELED)
        return EXIT_INTERRUPTED;
    if (r < 0)
        fprintf(stderr, "plateau: %s\n", e.text);
    return r < 0 ? 1 : 0;
}

int command_generate(int argc, char **argv)
{
    struct options o;
    int r = with_options(&o, argc, argv);
    options_done(&o);
    return r;
}
