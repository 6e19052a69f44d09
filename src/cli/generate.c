/* generate.c - one prompt to standard output, token by token.
 *
 * The same way as a request over HTTP, without the network: template, tokens, engine, stream, text. */
#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "cli/cli.h"
#include "cli/runtime.h"
#include "text/chat_format.h"
#include "text/detok.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GENERATE_PROMPT_BYTES_MAX ((size_t)16 << 20)
#define GENERATE_SCRATCH_BYTES    ((size_t)1 << 30) /* address space */

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal)
{
    (void)signal;
    interrupted = 1;
}

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

static int render(struct runtime *rt, struct arena *scratch, struct slice prompt, struct buf *ret,
                  struct err *e)
{
    const struct options *o = rt->options;
    if (o->raw || !rt->template) {
        buf_put_slice(ret, prompt);
        return ret->error ? err_set(e, ret->error, "the prompt is too long") : 0;
    }
    json_t *messages = json_array(), *kwargs = json_pack("{s:b}", "enable_thinking", o->think);
    if (o->system)
        json_array_append_new(messages, json_pack("{s:s, s:s}", "role", "system", "content", o->system));
    json_t *user =
        json_pack("{s:s, s:s%}", "role", "user", "content", prompt.ptr ? prompt.ptr : "", prompt.len);
    int r = user ? json_array_append_new(messages, user) : -1;
    struct chat_template_input in = {.messages = messages,
                                     .kwargs = kwargs,
                                     .add_generation_prompt = true,
                                     .bos_token = tokenizer_bos(rt->tokenizer),
                                     .eos_token = tokenizer_eos(rt->tokenizer),
                                     .now_s = (int64_t)clock_wall_s()};
    if (r < 0)
        err_set(e, r = -EINVAL, "the prompt is no valid UTF-8 text");
    else
        r = chat_template_render(rt->template, scratch, &in, &CHAT_TEMPLATE_LIMITS_DEFAULT, ret, e);
    json_decref(messages);
    json_decref(kwargs);
    return r;
}

static void sampling(const struct runtime *rt, struct sampler_params *p)
{
    const struct options *o = rt->options;
    const struct generation_defaults *d = &rt->defaults;
    sampler_params_default(p);
    bool samples = d->do_sample;
    p->temperature = o->temperature >= 0 ? (float)o->temperature : samples ? (float)d->temperature : 0;
    p->top_p = o->top_p > 0 ? (float)o->top_p : samples ? (float)d->top_p : 1;
    p->top_k = o->top_k > 0 ? (uint32_t)o->top_k : samples ? d->top_k : 0;
    p->min_p = samples ? (float)d->min_p : 0;
    p->repetition_penalty = (float)d->repetition_penalty;
    p->seed = o->seed;
    for (uint32_t i = 0; !o->ignore_eos && i < d->eos_count; i++)
        p->stop_ids[p->stop_count++] = d->eos_ids[i];
}

/* Tokens to standard output until the job is over. */
static int print_stream(struct runtime *rt, struct mailbox *wake, struct stream *s, struct stream_finish *ret)
{
    struct detok detok;
    struct stream_token token;
    struct buf text;
    void *message;
    bool over = false;
    detok_init(&detok, rt->tokenizer, true);
    buf_init(&text, 1 << 20, NULL);
    while (!over) {
        mailbox_wait(wake, &message, 100 * NS_PER_MS);
        stream_wake_clear(s);
        if (interrupted) {
            stream_close(s);
            engine_wake(rt->engine);
        }
        while (stream_take(s, &token))
            detok_push(&detok, token.id, &text);
        over = stream_finished(s, ret);
        if (over)
            detok_flush(&detok, &text);
        fwrite(text.ptr, 1, text.len, stdout);
        fflush(stdout);
        buf_clear(&text);
    }
    buf_done(&text);
    putchar('\n');
    return ret->reason == FINISH_ERROR ? -EIO : 0;
}

static int submit(struct runtime *rt, const uint32_t *ids, size_t count, struct mailbox *wake, struct err *e)
{
    struct job_spec job = {.prompt = ids, .prompt_count = (uint32_t)count};
    struct stream *s;
    struct stream_finish finish;
    uint32_t retry_after_s;
    if (count == 0)
        return err_set(e, -EINVAL, "the prompt is empty");
    if (count >= rt->max_model_len)
        return err_set(e, -EINVAL, "the prompt has %zu tokens: --max-model-len is %u", count,
                       rt->max_model_len);
    sampling(rt, &job.sampling);
    job.max_tokens = (uint32_t)MIN_OF(rt->options->max_tokens, (uint64_t)(rt->max_model_len - count));
    int r = stream_create(&(struct stream_opts){.id = request_id_draw(), .wake = wake}, &s);
    if (r < 0)
        return err_set(e, r, "no memory for a stream");
    r = engine_submit(rt->engine, &job, s, &retry_after_s, e);
    if (r < 0)
        stream_release(s); /* the job half was never taken */
    else if ((r = print_stream(rt, wake, s, &finish)) < 0)
        err_set(e, r, "%s", finish.error);
    stream_release(s);
    return r;
}

static int generate(struct runtime *rt, struct err *e)
{
    struct arena *scratch = NULL;
    struct mailbox *wake = NULL;
    struct buf prompt, rendered;
    uint32_t *ids = NULL;
    size_t count = 0;
    struct charge charge = account_charge(rt->text);
    buf_init(&prompt, GENERATE_PROMPT_BYTES_MAX, &charge);
    buf_init(&rendered, GENERATE_PROMPT_BYTES_MAX, &charge);
    int r = arena_create(&(struct arena_opts){GENERATE_SCRATCH_BYTES, 0, &charge}, &scratch);
    if (r == 0)
        r = mailbox_create(&(struct mailbox_opts){4, sizeof(void *), false, &charge}, &wake);
    if (r == 0)
        r = read_prompt(rt->options->argument, &prompt, e);
    if (r == 0)
        r = render(rt, scratch, buf_slice(&prompt), &rendered, e);
    if (r == 0 && !(ids = ARENA_ARRAY(scratch, uint32_t, rt->max_model_len)))
        r = err_set(e, -ENOMEM, "no memory for the prompt's tokens");
    if (r == 0)
        r = tokenizer_encode(rt->tokenizer, scratch, buf_slice(&rendered),
                             &(struct tokenizer_opts){.added_tokens = true, .add_special = rt->options->raw},
                             ids, rt->max_model_len, &count, e);
    if (r == 0)
        r = submit(rt, ids, count, wake, e);
    mailbox_free(wake);
    arena_free(scratch);
    buf_done(&rendered);
    buf_done(&prompt);
    return r;
}

static void usage(FILE *f)
{
    fprintf(
        f,
        "plateau generate [--model DIR] [OPTION...] PROMPT\n\n"
        "Answers one prompt on standard output, token by token. \"-\" reads the prompt from standard input.\n"
        "Without --model the bundled model answers. Ctrl-C stops.\n\n");
    options_help(COMMAND_GENERATE, f);
}

int command_generate(int argc, char **argv)
{
    struct options o;
    struct runtime rt;
    struct err e = {{0}};
    enum log_level level = LOG_LEVEL_WARN;
    int r = options_parse(COMMAND_GENERATE, argc, argv, &o, &e);
    if (r == 0 && o.help) {
        usage(stdout);
        return 0;
    }
    if (r == 0 && !o.argument)
        r = err_set(&e, -EINVAL, "a prompt is needed; see plateau generate --help");
    if (r == 0 && o.log_level && !log_level_parse(o.log_level, &level))
        r = err_set(&e, -EINVAL, "--log-level %s: error, warn, info or debug is expected", o.log_level);
    if (r < 0) {
        fprintf(stderr, "plateau: %s\n", e.text);
        return 2;
    }
    log_set_level(level);
    signal(SIGINT, on_interrupt);
    r = runtime_open(&o, &rt, &e);
    if (r == 0) {
        r = runtime_load(&rt, 1, 1, NULL, NULL, &e);
        if (r == 0 && !rt.tokenizer)
            r = err_set(&e, -ENOENT, "%s has no tokenizer.json: it cannot read text", rt.model_dir);
        if (r == 0)
            r = generate(&rt, &e);
        runtime_close(&rt);
    }
    if (r < 0)
        fprintf(stderr, "plateau: %s\n", e.text);
    return r < 0 ? 1 : 0;
}
