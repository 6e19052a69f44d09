/* spec_bench.c - spec_bench [options] [MODEL]: decoding with speculative decoding, against decoding without.
 *
 * Two engines answer the same questions in turns; one has drafts disabled. 1 to 16 questions run at once,
 * each turn straight after the other, so that other load on the machine slows both. Both must give the same
 * tokens. The bundled model gets its longer golden answers and ends them itself. Other models get made-up
 * tokens and write ANSWER of them.
 *
 * Printed are medians over rounds of all questions: tokens per second from the first token to the last, their
 * ratio, and the share of accepted draft tokens. Exit status 1: a ratio is below its limit in --least, for
 * one sequence and for several, or a token differs. The draft length is learnt in earlier rounds that do not
 * count. */

#include "model_path.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/median.h"
#include "base/page_tokens.h"
#include "base/threads/mailbox.h"
#include "compute/device.h"
#include "engine/engine.h"
#include "engine/engine_numbers.h"
#include "engine/engine_opts.h"
#include "engine/job_spec.h"
#include "engine/stream.h"
#include "memory/ledger.h"
#include "model/model.h"
#include "registry/speculation.h"
#include "spec/drafting.h"

#include <errno.h>
#include <getopt.h>
#include <jansson.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    ROWS_MAX = 16,
    PROMPT_MAX = 130,
    ANSWER = 128,
    ANSWER_LEAST = 16,
    QUESTIONS_MAX = 16,
    ROUNDS_MAX = 2000,
    WARM = 2
};

static const uint32_t row_counts[] = {1, 2, 4, 8, ROWS_MAX};

struct side {
    struct model *model;
    struct engine *engine;
    uint32_t tokens[ROWS_MAX + 1][ANSWER], counts[ROWS_MAX + 1];
    uint64_t decode_ns; /* time of the row that took longest */
};

struct question {
    uint32_t ids[PROMPT_MAX], count;
};

/* Stands before a step until all of a turn are here. */
struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changes;
    bool shut, reached;
};

struct bench {
    struct ledger *ledger;
    struct device *device;
    struct mailbox *mailbox;
    struct side off, on;
    struct question questions[QUESTIONS_MAX];
    uint32_t question_count;
    bool ends; /* answers end by themselves */
    struct gate gate;
    struct engine_faults faults;
    /* Options. */
    struct speculation how;
    enum compute_mode compute;
    double seconds, temperature, least_one, least_many;
    uint32_t rows_only; /* 0: all of row_counts */
    bool json, idle;
    const char *golden; /* whose questions; NULL: made up */
};

/* ---- opening ---- */

static int load(struct bench *b, const char *dir, const struct drafting_opts *g, struct side *ret,
                struct err *e)
{
    struct model_parts parts = {.compute = b->compute};
    speculation_parts(&b->how, g, &parts);
    struct model_opts opts = {.tokens_max = 2048,
                              .seqs_max = ROWS_MAX,
                              .logits_max = engine_logits_max(ROWS_MAX, g->drafts_max),
                              .parts = parts,
                              .device = b->device};
    int r = model_load_at(dir, &opts, &ret->model, e);
    if (r < 0)
        return r;
    const struct model_shape *s = model_shape(ret->model);
    uint64_t pages = (uint64_t)ROWS_MAX * (PROMPT_MAX + ANSWER) / PAGE_TOKENS + ROWS_MAX;
    struct engine_opts engine = {.name = g->drafts_max ? "on" : "off",
                                 .model = ret->model,
                                 .faults = &b->faults,
                                 .device = b->device,
                                 .parent = ledger_root(b->ledger),
                                 .max_num_seqs = ROWS_MAX,
                                 .max_queue = 1,
                                 .max_model_len = PROMPT_MAX + ANSWER,
                                 .tokens_max = opts.tokens_max,
                                 .kv_bytes_max = pages * s->page_bytes,
                                 .drafting = *g,
                                 .keep_units = true,
                                 .step_ns = 100 * NS_PER_MS,
                                 .step_alone_ns = NS_PER_S};
    r = engine_create(&engine, &ret->engine, e);
    return r == 0 ? engine_start(ret->engine) : r;
}

static void add_question(struct bench *b, const json_t *ids, const json_t *answer)
{
    size_t count = json_array_size(ids);
    if (count > PROMPT_MAX || json_array_size(answer) < ANSWER_LEAST || b->question_count == QUESTIONS_MAX)
        return;
    struct question *q = &b->questions[b->question_count++];
    q->count = (uint32_t)count;
    for (uint32_t i = 0; i < q->count; i++)
        q->ids[i] = (uint32_t)json_integer_value(json_array_get(ids, i));
}

static bool read_golden(struct bench *b, const char *path)
{
    json_t *g = json_load_file(path, JSON_ALLOW_NUL, NULL);
    size_t i;
    const json_t *c;
    json_array_foreach(json_object_get(g, "cases"), i, c)
        add_question(b, json_object_get(c, "prompt_ids"), json_object_get(c, "greedy_ids"));
    json_decref(g);
    return b->question_count > 0;
}

static void make_up(struct bench *b, uint32_t vocab)
{
    b->question_count = QUESTIONS_MAX;
    for (uint32_t i = 0; i < QUESTIONS_MAX; i++) {
        b->questions[i].count = 24;
        for (uint32_t k = 0; k < 24; k++)
            b->questions[i].ids[k] = (i * 7919 + k * k * 31 + k * 17) % vocab;
    }
}

static int pass_gate(void *arg)
{
    struct gate *g = arg;
    pthread_mutex_lock(&g->lock);
    g->reached = true;
    pthread_cond_broadcast(&g->changes);
    while (g->shut)
        pthread_cond_wait(&g->changes, &g->lock);
    pthread_mutex_unlock(&g->lock);
    return 0;
}

static void set_gate(struct gate *g, bool shut)
{
    pthread_mutex_lock(&g->lock);
    g->shut = shut;
    g->reached = false;
    pthread_cond_broadcast(&g->changes);
    pthread_mutex_unlock(&g->lock);
}

static void await_step(struct gate *g)
{
    pthread_mutex_lock(&g->lock);
    while (!g->reached)
        pthread_cond_wait(&g->changes, &g->lock);
    pthread_mutex_unlock(&g->lock);
}

static int open_bench(struct bench *b, const char *dir, struct err *e)
{
    struct model_shape shape;
    struct mailbox_opts mailbox = {.messages_max = 2 * ROWS_MAX, .message_bytes = sizeof(void *)};
    struct drafting_opts off = {0}, on;
    pthread_mutex_init(&b->gate.lock, NULL);
    pthread_cond_init(&b->gate.changes, NULL);
    b->faults = (struct engine_faults){.step = pass_gate, .arg = &b->gate};
    int r = device_open_cpu(device_default_workers(), NULL, &b->device);
    if (r == 0)
        r = ledger_create(ACCOUNT_NO_LIMIT, &b->ledger);
    if (r == 0)
        r = mailbox_create(&mailbox, &b->mailbox);
    if (r < 0)
        return err_set(e, r, "no memory, or no threads");
    r = model_probe_at(dir, &(struct model_parts){.mtp = true, .drafts_max = 1}, &shape, e);
    on = speculation_drafting(&b->how, r == 0 && shape.mtp);
    if (r == 0 && on.drafts_max == 0)
        return err_set(e, -ENOENT, "nobody drafts in this model: it has no head, see --spec ngram");
    if (r == 0)
        r = load(b, dir, &off, &b->off, e);
    if (r == 0)
        r = load(b, dir, &on, &b->on, e);
    if (r == 0 && !b->ends)
        make_up(b, shape.vocab);
    return r;
}

static void close_bench(struct bench *b)
{
    engine_close(b->off.engine);
    engine_close(b->on.engine);
    model_free(b->off.model);
    model_free(b->on.model);
    mailbox_free(b->mailbox);
    ledger_free(b->ledger);
    device_close(b->device);
}

/* ---- running ---- */

static void submit(struct bench *b, struct side *s, const struct question *q, uint32_t row,
                   uint32_t tokens_max)
{
    static const uint32_t ends[] = {8180, 8178}; /* end tokens of the bundled model */
    struct err e = {{0}};
    struct stream *stream;
    struct job_spec spec = {
        .prompt = q->ids, .prompt_count = q->count, .max_tokens = tokens_max, .speculative = !b->idle};
    sampler_params_default(&spec.sampling);
    spec.sampling.temperature = (float)b->temperature;
    spec.sampling.seed = row;
    spec.sampling.stop_count = b->ends ? COUNT_OF(ends) : 0;
    memcpy(spec.sampling.stop_ids, ends, sizeof(ends));
    struct stream_opts opts = {.id = request_id_new(), .wake = b->mailbox, .user = s->tokens[row]};
    int r = stream_create(&opts, &stream);
    if (r == 0)
        r = engine_submit(s->engine, &spec, stream, NULL, &e);
    if (r < 0) {
        fprintf(stderr, "spec_bench: %s\n", e.text);
        exit(1);
    }
}

/* Takes the available tokens. True: they were the last, and the stream is closed. */
static bool take(struct side *s, struct stream *stream)
{
    uint32_t *tokens = stream_user(stream);
    uint32_t row = (uint32_t)((uint32_t(*)[ANSWER])tokens - s->tokens);
    struct stream_token t;
    struct stream_finish f;
    stream_wake_clear(stream);
    while (stream_take(stream, &t))
        tokens[s->counts[row]++] = t.id;
    if (!stream_finished(stream, &f))
        return false;
    s->decode_ns = MAX_OF(s->decode_ns, f.decode_ns);
    stream_release(stream);
    return true;
}

/* Runs `rows` questions at once, from the first-th on. One token of one more question occupies the engine
 * while they are submitted: without it some would decode while others are prefilled. */
static void run(struct bench *b, struct side *s, uint32_t rows, uint32_t first)
{
    const struct question one = {{1}, 1};
    memset(s->counts, 0, sizeof(s->counts));
    s->decode_ns = 0;
    set_gate(&b->gate, true);
    submit(b, s, &one, ROWS_MAX, 1);
    await_step(&b->gate);
    for (uint32_t i = 0; i < rows; i++)
        submit(b, s, &b->questions[(first + i) % b->question_count], i, ANSWER);
    set_gate(&b->gate, false);
    for (uint32_t left = rows + 1; left > 0;) {
        struct stream *stream;
        mailbox_wait(b->mailbox, &stream, UINT64_MAX);
        left -= take(s, stream);
    }
}

/* All questions once, on both sides. */
struct round {
    double off_ns, on_ns, tokens; /* tokens: after the first ones */
    bool same;
};

static struct round run_round(struct bench *b, uint32_t rows, uint32_t number)
{
    struct round r = {.same = true};
    uint32_t turns = MAX_OF(b->question_count / rows, 1u);
    for (uint32_t i = 0; i < turns; i++) {
        uint32_t first = i * rows + number;
        /* Each goes first as often as the other. */
        struct side *sides[] = {&b->off, &b->on};
        for (uint32_t k = 0; k < 2; k++)
            run(b, sides[(number + i + k) % 2], rows, first);
        r.off_ns += (double)b->off.decode_ns;
        r.on_ns += (double)b->on.decode_ns;
        for (uint32_t k = 0; k < rows; k++) {
            r.tokens += b->off.counts[k] - 1;
            r.same = r.same && b->off.counts[k] == b->on.counts[k] &&
                     memcmp(b->off.tokens[k], b->on.tokens[k], b->on.counts[k] * sizeof(uint32_t)) == 0;
        }
    }
    return r;
}

struct figures {
    double off_tokens_s, on_tokens_s, ratio, accepted, per_step;
    bool same;
};

static struct figures measure(struct bench *b, uint32_t rows)
{
    double off[ROUNDS_MAX], on[ROUNDS_MAX], ratio[ROUNDS_MAX];
    struct engine_numbers before, after;
    struct figures f = {.same = true};
    uint32_t n = 0;
    for (uint32_t i = 0; i < WARM; i++)
        f.same = run_round(b, rows, i).same && f.same;
    engine_numbers(b->on.engine, &before);
    uint64_t end_ns = clock_now_ns() + (uint64_t)(b->seconds * (double)NS_PER_S);
    for (; n < ROUNDS_MAX && (n < 3 || clock_now_ns() < end_ns); n++) {
        struct round r = run_round(b, rows, n);
        off[n] = r.tokens / r.off_ns * 1e9;
        on[n] = r.tokens / r.on_ns * 1e9;
        ratio[n] = r.off_ns / r.on_ns;
        f.same = f.same && r.same;
    }
    engine_numbers(b->on.engine, &after);
    double drafts = (double)(after.drafts - before.drafts);
    double drafted = (double)(after.draft_tokens - before.draft_tokens);
    f.off_tokens_s = median_of(off, n);
    f.on_tokens_s = median_of(on, n);
    f.ratio = median_of(ratio, n);
    f.accepted = drafted > 0 ? (double)(after.accepted_tokens - before.accepted_tokens) / drafted : NAN;
    f.per_step = drafts > 0 ? drafted / drafts : 0;
    return f;
}

static bool print_rows(struct bench *b, uint32_t rows)
{
    struct figures f = measure(b, rows);
    bool fast = f.ratio >= (rows == 1 ? b->least_one : b->least_many);
    if (b->json)
        printf("{\"rows\":%u,\"off_tokens_per_s\":%.1f,\"on_tokens_per_s\":%.1f,\"ratio\":%.3f,\"accepted\":%"
               ".3f,"
               "\"drafts_at_once\":%.2f,\"same\":%s}\n",
               rows, f.off_tokens_s, f.on_tokens_s, f.ratio, isnan(f.accepted) ? 0 : f.accepted, f.per_step,
               f.same ? "true" : "false");
    else
        printf("  %6u %12.1f %12.1f %8.3f %10.1f%% %10.2f %s\n", rows, f.off_tokens_s, f.on_tokens_s, f.ratio,
               100 * f.accepted, f.per_step, f.same ? "" : "  NOT THE SAME TOKENS");
    fflush(stdout);
    return fast && (f.same || b->how.optimistic);
}

/* ---- the command ---- */

static void usage(FILE *out)
{
    fputs("usage: spec_bench [options] [MODEL]\n"
          "  --spec auto|mtp|ngram  who drafts [auto]\n"
          "  --mtp N                at most so many by the head [3]\n"
          "  --draft-vocab N        tokens that it looks among; 0: all\n"
          "  --always               whether it pays or not\n"
          "  --idle                 nobody drafts: what being ready to costs\n"
          "  --optimistic           the head's drafts are kept without comparing\n"
          "  --temperature T        [0]\n"
          "  --golden FILE          a golden.json of this tokenizer: whose questions\n"
          "  --rows N               only so many requests at once\n"
          "  --seconds S            for each number of rows [4]\n"
          "  --least A,B            exit 1 below this ratio for one row, and for more\n"
          "  --compute M            f32, int16 or int8: the arithmetic of quantised weights [auto]\n"
          "  --json                 a line of JSON for each\n",
          out);
}

static bool parse(int argc, char **argv, struct bench *b)
{
    static const struct option options[] = {{"spec", required_argument, NULL, 's'},
                                            {"mtp", required_argument, NULL, 'm'},
                                            {"draft-vocab", required_argument, NULL, 'v'},
                                            {"always", no_argument, NULL, 'a'},
                                            {"idle", no_argument, NULL, 'i'},
                                            {"golden", required_argument, NULL, 'g'},
                                            {"optimistic", no_argument, NULL, 'o'},
                                            {"rows", required_argument, NULL, 'r'},
                                            {"seconds", required_argument, NULL, 't'},
                                            {"least", required_argument, NULL, 'l'},
                                            {"json", no_argument, NULL, 'j'},
                                            {"compute", required_argument, NULL, 'c'},
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
        case 'v':
            b->how.draft_vocab = (uint32_t)strtoul(optarg, NULL, 10);
            break;
        case 'a':
            b->how.always = true;
            break;
        case 'i':
            b->idle = true;
            break;
        case 'g':
            b->golden = optarg;
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
        case 'c':
            good = compute_mode_parse(optarg, &b->compute);
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
    b.how.draft_vocab = MODEL_DRAFT_VOCAB_AUTO;
    b.seconds = 4;
    if (!parse(argc, argv, &b))
        return 2;
    const char *dir = optind < argc ? argv[optind] : PLATEAU_SOURCE_DIR "/models/canary";
    if (!b.golden && optind == argc)
        b.golden = PLATEAU_SOURCE_DIR "/tests/golden/data/canary-8bit/golden.json";
    b.ends = b.golden && read_golden(&b, b.golden);
    if (open_bench(&b, dir, &e) < 0) {
        fprintf(stderr, "spec_bench: %s\n", e.text);
        return 1;
    }
    if (!b.json)
        printf("kernels %s, %u workers, %s: %u tokens drafted at most\n  %6s %12s %12s %8s %11s %10s\n",
               b.device->tier, b.device->workers, dir,
               speculation_drafting(&b.how, model_shape(b.on.model)->mtp).drafts_max, "rows", "tokens/s off",
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
