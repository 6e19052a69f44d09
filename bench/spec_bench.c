/* spec_bench.c - spec_bench [options] [MODEL]: decoding with tokens guessed ahead, against decoding without.
 *
 * Two engines, one of a model loaded as if there were no guesses, answer the same requests in turns: 1 to 16 at once, each pair one
 * straight behind the other, so that what else the machine does slows both. Both must give the same tokens. Printed are medians over the
 * pairs: tokens per second, their ratio, and how many of the guesses were right. Exit status 1: a ratio is below what --least says, for
 * one row and for several, or a token differs.
 * Time is from the first request to the last token; prompts are short. How far to guess is learnt in the pairs that go before and are not
 * counted. */
#include "yardsticks.h"

#include "base/check.h"
#include "base/clock.h"
#include "engine/engine.h"
#include "registry/speculation.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS_MAX = 16, PROMPT_MAX = 128, ANSWER = 256, PAIRS_MAX = 40, WARM = 2 };

static const uint32_t row_counts[] = {1, 2, 4, 8, ROWS_MAX};

struct side {
    struct model *model;
    struct engine *engine;
    uint32_t tokens[ROWS_MAX][ANSWER];
};

struct bench {
    struct ledger *ledger;
    struct arena *arena;
    struct tokenizer *tokenizer; /* NULL: made-up prompts */
    struct workers *workers;
    struct kern_ops ops;
    struct mailbox *mailbox;
    struct side off, on;
    uint32_t prompts[ROWS_MAX][PROMPT_MAX];
    size_t prompt_counts[ROWS_MAX];
    /* Options. */
    struct speculation how;
    double seconds, temperature, least_one, least_many;
    uint32_t rows_only; /* 0: all of row_counts */
    bool json;
};

/* ---- opening ---- */

static int load(struct bench *b, const char *dir, const struct engine_guessing *g, struct side *ret,
                struct err *e)
{
    struct model_parts parts = {0};
    speculation_parts(g, &parts);
    struct model_opts opts = {.tokens_max = engine_tokens_min(ROWS_MAX, g->drafts_max) + 256,
                              .rows_max = ROWS_MAX,
                              .logits_max = engine_logits_max(ROWS_MAX, g->drafts_max),
                              .parts = parts,
                              .ops = &b->ops,
                              .workers = b->workers};
    int r = model_load(dir, &opts, &ret->model, e);
    if (r < 0)
        return r;
    const struct model_shape *s = model_shape(ret->model);
    uint64_t pages = (uint64_t)ROWS_MAX * (PROMPT_MAX + ANSWER) / KERN_PAGE_TOKENS + ROWS_MAX;
    struct engine_opts engine = {.name = g->drafts_max ? "on" : "off",
                                 .model = ret->model,
                                 .tokenizer = b->tokenizer,
                                 .workers = b->workers,
                                 .parent = ledger_root(b->ledger),
                                 .max_num_seqs = ROWS_MAX,
                                 .max_model_len = PROMPT_MAX + ANSWER,
                                 .tokens_max = opts.tokens_max,
                                 .kv_bytes_max = pages * s->page_bytes,
                                 .guessing = *g,
                                 .keep_units = true,
                                 .step_ns = 100 * NS_PER_MS,
                                 .step_alone_ns = NS_PER_S};
    r = engine_create(&engine, &ret->engine, e);
    return r == 0 ? engine_start(ret->engine) : r;
}

static int read_prompts(struct bench *b, uint32_t vocab, struct err *e)
{
    static const char *const about[ROWS_MAX] = {"mkdir", "ls",   "chmod",  "open",  "read", "grep",
                                                "tar",   "fork", "malloc", "sed",   "kill", "mount",
                                                "ps",    "cat",  "sort",   "printf"};
    for (uint32_t i = 0; i < ROWS_MAX; i++) {
        char text[256];
        snprintf(text, sizeof(text), "<|im_start|>user\nWhat does %s do?<|im_end|>\n<|im_start|>assistant\n",
                 about[i]);
        b->prompt_counts[i] = 24;
        for (uint32_t k = 0; k < 24; k++)
            b->prompts[i][k] = (i * 7919 + k * k * 31 + k * 17) % vocab;
        if (!b->tokenizer)
            continue;
        int r = tokenizer_encode(b->tokenizer, b->arena, slice_of(text),
                                 &(struct tokenizer_opts){.added_tokens = true}, b->prompts[i], PROMPT_MAX,
                                 &b->prompt_counts[i], e);
        if (r < 0)
            return r;
    }
    return 0;
}

static int open_bench(struct bench *b, const char *dir, struct err *e)
{
    struct model_shape shape;
    struct mailbox_opts mailbox = {.messages_max = 2 * ROWS_MAX, .message_bytes = sizeof(void *)};
    struct engine_guessing off = {0}, on;
    kern_ops_init(&b->ops, kern_cpu_flags());
    int r = workers_create(workers_default_count(), NULL, &b->workers);
    if (r == 0)
        r = ledger_create(ACCOUNT_NO_LIMIT, &b->ledger);
    if (r == 0)
        r = mailbox_create(&mailbox, &b->mailbox);
    if (r == 0)
        r = arena_create(&(struct arena_opts){.bytes_max = (size_t)512 << 20}, &b->arena);
    if (r < 0)
        return err_set(e, r, "no memory, or no threads");
    r = tokenizer_load(b->arena, dir, &b->tokenizer, e);
    if (r < 0 && r != -ENOENT)
        return r;
    r = model_probe(dir, &(struct model_parts){.mtp = true, .drafts_max = 1}, &shape, e);
    on = speculation_guessing(&b->how, r == 0 && shape.mtp);
    if (r == 0 && on.drafts_max == 0)
        return err_set(e, -ENOENT, "nobody guesses in this model: it has no head, see --spec ngram");
    if (r == 0)
        r = load(b, dir, &off, &b->off, e);
    if (r == 0)
        r = load(b, dir, &on, &b->on, e);
    return r == 0 ? read_prompts(b, shape.vocab, e) : r;
}

static void close_bench(struct bench *b)
{
    engine_close(b->off.engine);
    engine_close(b->on.engine);
    model_free(b->off.model);
    model_free(b->on.model);
    tokenizer_done(b->tokenizer);
    arena_free(b->arena);
    mailbox_free(b->mailbox);
    ledger_free(b->ledger);
    workers_free(b->workers);
}

/* ---- running ---- */

static int submit(struct bench *b, struct side *s, uint32_t row, struct err *e)
{
    struct stream *stream;
    struct job_spec spec = {.prompt = b->prompts[row],
                            .prompt_count = (uint32_t)b->prompt_counts[row],
                            .max_tokens = ANSWER,
                            .speculative = true};
    sampler_params_default(&spec.sampling);
    spec.sampling.temperature = (float)b->temperature;
    spec.sampling.seed = row;
    struct stream_opts opts = {.id = request_id_draw(), .wake = b->mailbox, .user = s->tokens[row]};
    int r = stream_create(&opts, &stream);
    return r == 0 ? engine_submit(s->engine, &spec, stream, NULL, e) : r;
}

/* Takes what there is; `at` counts. True: it was the last, and the stream is gone. */
static bool take(struct stream *stream, uint32_t *at)
{
    uint32_t *tokens = stream_user(stream);
    struct stream_token t;
    struct stream_finish f;
    stream_wake_clear(stream);
    while (stream_take(stream, &t))
        tokens[(*at)++] = t.id;
    if (!stream_finished(stream, &f))
        return false;
    stream_release(stream);
    return true;
}

/* So many requests at once; returns the seconds they took. */
static double run(struct bench *b, struct side *s, uint32_t rows)
{
    uint32_t counts[ROWS_MAX] = {0};
    struct err e = {{0}};
    uint64_t began_ns = clock_now_ns();
    for (uint32_t i = 0; i < rows; i++) {
        if (submit(b, s, i, &e) < 0) {
            fprintf(stderr, "spec_bench: %s\n", e.text);
            exit(1);
        }
    }
    for (uint32_t left = rows; left > 0;) {
        struct stream *stream;
        mailbox_wait(b->mailbox, &stream, UINT64_MAX);
        uint32_t row = (uint32_t)((uint32_t(*)[ANSWER])stream_user(stream) - s->tokens);
        left -= take(stream, &counts[row]);
    }
    return (double)(clock_now_ns() - began_ns) / (double)NS_PER_S;
}

struct figures {
    double off_s, on_s, ratio, accepted, per_step;
};

static struct figures measure(struct bench *b, uint32_t rows)
{
    double off[PAIRS_MAX], on[PAIRS_MAX], ratio[PAIRS_MAX];
    struct engine_numbers before, after;
    uint32_t n = 0;
    for (int i = 0; i < WARM; i++) {
        run(b, &b->off, rows);
        run(b, &b->on, rows);
    }
    engine_numbers(b->on.engine, &before);
    uint64_t end_ns = clock_now_ns() + (uint64_t)(b->seconds * (double)NS_PER_S);
    for (; n < PAIRS_MAX && (n < 3 || clock_now_ns() < end_ns); n++) {
        /* Each goes first as often as the other. */
        if (n % 2 == 0)
            off[n] = run(b, &b->off, rows);
        on[n] = run(b, &b->on, rows);
        if (n % 2 == 1)
            off[n] = run(b, &b->off, rows);
        ratio[n] = off[n] / on[n];
    }
    engine_numbers(b->on.engine, &after);
    double guessed = (double)(after.draft_tokens - before.draft_tokens);
    return (struct figures){
        .off_s = yardsticks_median(off, n),
        .on_s = yardsticks_median(on, n),
        .ratio = yardsticks_median(ratio, n),
        .accepted = guessed > 0 ? (double)(after.accepted_tokens - before.accepted_tokens) / guessed : NAN,
        .per_step = (double)(after.completion_tokens - before.completion_tokens) /
                    (double)(after.steps - before.steps) / rows};
}

static bool print_rows(struct bench *b, uint32_t rows)
{
    struct figures f = measure(b, rows);
    double tokens = rows * (double)ANSWER;
    bool same = memcmp(b->off.tokens, b->on.tokens, rows * sizeof(b->off.tokens[0])) == 0;
    bool fast = f.ratio >= (rows == 1 ? b->least_one : b->least_many);
    if (b->json)
        printf("{\"rows\":%u,\"off_tokens_per_s\":%.1f,\"on_tokens_per_s\":%.1f,\"ratio\":%.3f,\"accepted\":%"
               ".3f,"
               "\"tokens_per_row_step\":%.2f,\"same\":%s}\n",
               rows, tokens / f.off_s, tokens / f.on_s, f.ratio, isnan(f.accepted) ? 0 : f.accepted,
               f.per_step, same ? "true" : "false");
    else
        printf("  %6u %12.1f %12.1f %8.3f %10.1f%% %10.2f %s\n", rows, tokens / f.off_s, tokens / f.on_s,
               f.ratio, 100 * f.accepted, f.per_step, same ? "" : "  NOT THE SAME TOKENS");
    fflush(stdout);
    return fast && (same || b->how.optimistic);
}

/* ---- the command ---- */

static void usage(FILE *out)
{
    fputs("usage: spec_bench [options] [MODEL]\n"
          "  --spec auto|mtp|ngram  who guesses [auto]\n"
          "  --mtp N                at most so many by the head [3]\n"
          "  --always               whether it pays or not\n"
          "  --optimistic           the head's guesses are kept without comparing\n"
          "  --temperature T        [0]\n"
          "  --rows N               only so many requests at once\n"
          "  --seconds S            for each number of rows [4]\n"
          "  --least A,B            exit 1 below this ratio for one row, and for more\n"
          "  --json                 a line of JSON for each\n",
          out);
}

static bool parse(int argc, char **argv, struct bench *b)
{
    static const struct option options[] = {{"spec", required_argument, NULL, 's'},
                                            {"mtp", required_argument, NULL, 'm'},
                                            {"always", no_argument, NULL, 'a'},
                                            {"optimistic", no_argument, NULL, 'o'},
                                            {"rows", required_argument, NULL, 'r'},
                                            {"seconds", required_argument, NULL, 't'},
                                            {"least", required_argument, NULL, 'l'},
                                            {"json", no_argument, NULL, 'j'},
                                            {"temperature", required_argument, NULL, 'T'},
                                            {0}};
    bool good = true;
    for (int c; good && (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        switch (c) {
        case 's':
            good = speculation_parse(optarg, &b->how.way);
            break;
        case 'm':
            b->how.head_drafts = (int)MIN_OF(strtoul(optarg, NULL, 10), (unsigned long)MODEL_DRAFTS_MAX);
            break;
        case 'a':
            b->how.always = true;
            break;
        case 'o':
            b->how.optimistic = true;
            break;
        case 'r':
            b->rows_only = (uint32_t)strtoul(optarg, NULL, 10);
            good = b->rows_only >= 1 && b->rows_only <= ROWS_MAX;
            break;
        case 't':
            b->seconds = strtod(optarg, NULL);
            break;
        case 'T':
            b->temperature = strtod(optarg, NULL);
            break;
        case 'l':
            good = sscanf(optarg, "%lf,%lf", &b->least_one, &b->least_many) == 2;
            break;
        case 'j':
            b->json = true;
            break;
        default:
            good = false;
        }
    }
    if (!good)
        usage(stderr);
    return good;
}

int main(int argc, char **argv)
{
    static struct bench b;
    struct err e = {{0}};
    b.how.head_drafts = SPECULATION_DRAFTS_ANY;
    b.seconds = 4;
    if (!parse(argc, argv, &b))
        return 2;
    const char *dir = optind < argc ? argv[optind] : PLATEAU_SOURCE_DIR "/models/canary";
    if (open_bench(&b, dir, &e) < 0) {
        fprintf(stderr, "spec_bench: %s\n", e.text);
        return 1;
    }
    if (!b.json)
        printf("kernels %s, %u workers, %s: %u tokens guessed at most\n  %6s %12s %12s %8s %11s %10s\n",
               b.ops.tier, workers_count(b.workers), dir,
               speculation_guessing(&b.how, model_shape(b.on.model)->mtp).drafts_max, "rows", "tokens/s off",
               "tokens/s on", "ratio", "right", "per step");
    bool good = true;
    for (size_t i = 0; i < COUNT_OF(row_counts); i++)
        if (b.rows_only == 0)
            good = print_rows(&b, row_counts[i]) && good;
    if (b.rows_only)
        good = print_rows(&b, b.rows_only) && good;
    close_bench(&b);
    return good ? 0 : 1;
}
