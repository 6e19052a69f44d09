/* schema_bench.c - schema_bench [options] [MODEL...]: decoding under a JSON schema, against decoding without.
 *
 * A MODEL is as in model_bench. The vocabulary is made up: 151,643 tokens and an end token. One engine
 * answers the same prompts in turns, with schemas and without, each turn straight after the other, so that
 * other load on the machine slows both. Every answer has ANSWER tokens: the schemas ask for lists that go on.
 * Sequences of a batch have different schemas, prompts and seeds.
 *
 * Printed are medians over rounds: tokens per second of both, their ratio, and the ratio of processor times,
 * which other load moves less. Exit status 1: a ratio is below --least. */
#include "bench_models.h"
#include "bench_vocab.h"
#include "yardsticks.h"

#include "base/check.h"
#include "base/clock.h"
#include "engine/engine.h"
#include "grammar/grammar_cache.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS_MAX = 8, PROMPT = 24, ANSWER = 96, ROUNDS_MAX = 500, ROUNDS_MIN = 5, WARM = 1 };

#define LIST(items) "{\"type\":\"array\",\"minItems\":100000,\"items\":" items "}"
static const char *const schemas[] = {
    LIST("{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"maxLength\":40},\"age\":{"
         "\"type\":"
         "\"integer\",\"minimum\":0,\"maximum\":150},\"city\":{\"enum\":[\"Berlin\",\"Lima\",\"Osaka\"]}},"
         "\"required\":[\"name\",\"age\",\"city\"],\"additionalProperties\":false}"),
    LIST(
        "{\"type\":\"object\",\"properties\":{\"path\":{\"type\":\"string\",\"pattern\":\"^/[a-z/]{1,30}$\"},"
        "\"arguments\":{\"type\":\"object\",\"maxProperties\":8,\"additionalProperties\":{\"type\":["
        "\"string\","
        "\"number\",\"boolean\"]}}},\"required\":[\"path\",\"arguments\"]}"),
    LIST("{\"type\":\"object\",\"properties\":{\"when\":{\"type\":\"string\",\"format\":\"date-time\"},"
         "\"value\":{"
         "\"type\":\"number\"},\"note\":{\"type\":\"string\"}},\"required\":[\"when\",\"value\",\"note\"]}"),
    LIST("{\"anyOf\":[{\"type\":\"object\",\"properties\":{\"kind\":{\"const\":\"text\"},\"text\":{\"type\":"
         "\"string\",\"maxLength\":200}},\"required\":[\"kind\",\"text\"]},{\"type\":\"object\","
         "\"properties\":{"
         "\"kind\":{\"const\":\"call\"},\"id\":{\"type\":\"integer\"}},\"required\":[\"kind\",\"id\"]}]}"),
};

static const char *const models_default[] = {"wide-qwen3-bf16", "qwen3-0.6b-8bit"};

struct bench {
    struct ledger *ledger;
    struct device *device;
    struct mailbox *mailbox;
    struct grammar_vocab *vocab;
    struct grammar_cache *cache;
    struct cached_grammar *grammars[COUNT_OF(schemas)];
    struct engine *engine;
    uint32_t prompt[PROMPT];
    /* Options. */
    double seconds, temperature, least;
    bool speculates, good;
};

static void open_grammars(struct bench *b)
{
    struct err e = {{0}};
    struct charge charge = account_charge(ledger_root(b->ledger));
    struct grammar_cache_opts opts = {.vocab = b->vocab, .bytes_max = 32 << 20, .charge = &charge};
    ASSERT(grammar_cache_create(&opts, &b->cache) == 0);
    for (size_t i = 0; i < COUNT_OF(schemas); i++) {
        struct grammar_source source = {GRAMMAR_JSON_SCHEMA, slice_of(schemas[i])};
        if (grammar_cache_get(b->cache, &source, &(struct grammar_source_opts){0}, &b->grammars[i], &e) < 0) {
            fprintf(stderr, "schema_bench: %s\n", e.text);
            exit(1);
        }
    }
}

/* ---- one turn ---- */

static void submit(struct bench *b, uint32_t row, uint32_t round, bool bound)
{
    struct err e = {{0}};
    struct stream *stream;
    struct job_spec spec = {.prompt = b->prompt, .prompt_count = PROMPT - row, .max_tokens = ANSWER};
    sampler_params_default(&spec.sampling);
    spec.sampling.temperature = (float)b->temperature;
    spec.sampling.seed = round * ROWS_MAX + row;
    spec.speculative = b->speculates;
    spec.grammar = bound ? b->grammars[(row + round) % COUNT_OF(schemas)] : NULL;
    struct stream_opts opts = {.id = request_id_draw(), .wake = b->mailbox};
    int r = stream_create(&opts, &stream);
    if (r == 0)
        r = engine_submit(b->engine, &spec, stream, NULL, &e);
    if (r < 0) {
        fprintf(stderr, "schema_bench: %s\n", e.text);
        exit(1);
    }
}

/* Takes the available tokens. True: they were the last, and the stream is closed. */
static bool take(struct bench *b, struct stream *stream)
{
    struct stream_token t;
    struct stream_finish f;
    stream_wake_clear(stream);
    while (stream_take(stream, &t))
        continue;
    if (!stream_finished(stream, &f))
        return false;
    if (f.completion_tokens != ANSWER)
        fprintf(stderr, "schema_bench: %u tokens: %s\n", f.completion_tokens, f.error);
    b->good = b->good && f.completion_tokens == ANSWER;
    stream_release(stream);
    return true;
}

/* Wall and processor time. */
struct seconds {
    double wall, cpu;
};

static double cpu_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static struct seconds time_turn(struct bench *b, uint32_t rows, uint32_t round, bool bound)
{
    uint64_t began_ns = clock_now_ns();
    double began_cpu = cpu_seconds();
    for (uint32_t i = 0; i < rows; i++)
        submit(b, i, round, bound);
    for (uint32_t left = rows; left > 0;) {
        struct stream *stream;
        mailbox_wait(b->mailbox, &stream, UINT64_MAX);
        left -= take(b, stream);
    }
    return (struct seconds){(double)(clock_now_ns() - began_ns) / (double)NS_PER_S,
                            cpu_seconds() - began_cpu};
}

/* Returns the ratio. */
static double measure(struct bench *b, uint32_t rows)
{
    double ratio[ROUNDS_MAX], cpu[ROUNDS_MAX], bound[ROUNDS_MAX], unbound[ROUNDS_MAX];
    uint32_t n = 0;
    uint64_t end_ns = clock_now_ns() + (uint64_t)(b->seconds * (double)NS_PER_S);
    for (uint32_t i = 0; n < ROUNDS_MAX && (n < ROUNDS_MIN || clock_now_ns() < end_ns); i++) {
        /* Each goes first as often as the other. */
        struct seconds first = time_turn(b, rows, i, i % 2), second = time_turn(b, rows, i, i % 2 == 0);
        struct seconds *with = i % 2 ? &first : &second, *without = i % 2 ? &second : &first;
        bound[n] = with->wall;
        unbound[n] = without->wall;
        ratio[n] = without->wall / with->wall;
        cpu[n] = without->cpu / with->cpu;
        n += i >= WARM;
    }
    double tokens = (double)rows * ANSWER, median = yardsticks_median(ratio, n);
    printf("  %6u %6.1f %14.1f %14.1f %9.2f%% %9.2f%%\n", rows, b->temperature,
           tokens / yardsticks_median(unbound, n), tokens / yardsticks_median(bound, n), 100 * median,
           100 * yardsticks_median(cpu, n));
    fflush(stdout);
    return median;
}

/* ---- one model ---- */

static int open_engine(struct bench *b, struct model *model, struct err *e)
{
    const struct model_shape *s = model_shape(model);
    uint64_t pages = ROWS_MAX * (DIV_UP(PROMPT + ANSWER, PAGE_TOKENS) + 1u);
    struct engine_opts opts = {.name = "bench",
                               .model = model,
                               .device = b->device,
                               .parent = ledger_root(b->ledger),
                               .max_num_seqs = ROWS_MAX,
                               .max_queue = ROWS_MAX,
                               .max_model_len = PROMPT + ANSWER,
                               .tokens_max = 512,
                               .kv_bytes_max = pages * s->page_bytes,
                               .keep_units = true,
                               .step_ns = 100 * NS_PER_MS,
                               .step_alone_ns = NS_PER_S};
    if (b->speculates)
        opts.drafting = (struct drafting_opts){.by = DRAFTING_NGRAM, .drafts_max = 3};
    int r = engine_create(&opts, &b->engine, e);
    return r == 0 ? engine_start(b->engine) : r;
}

static bool measure_all(struct bench *b)
{
    static const uint32_t row_counts[] = {1, ROWS_MAX};
    bool fast = true;
    printf("  %6s %6s %14s %14s %10s %10s\n", "rows", "temp", "tokens/s free", "with schema", "ratio", "cpu");
    for (size_t i = 0; i < COUNT_OF(row_counts); i++)
        fast = measure(b, row_counts[i]) >= b->least && fast;
    return fast;
}

static int bench_dir(struct bench *b, const char *dir, bool *fast, struct err *e)
{
    struct model_opts opts = {.tokens_max = 512,
                              .seqs_max = ROWS_MAX,
                              .logits_max = engine_logits_max(ROWS_MAX, b->speculates ? 3 : 0),
                              .parts = {.drafts_max = b->speculates ? 3 : 0},
                              .device = b->device};
    struct model_shape s;
    struct model *model = NULL;
    int r = model_probe(dir, &opts.parts, &s, e);
    if (r == 0)
        r = bench_models_check_memory(s.weight_bytes + (64 << 20), e);
    if (r == 0)
        r = model_load(dir, &opts, &model, e);
    if (r == 0)
        r = open_engine(b, model, e);
    if (r == 0)
        *fast = measure_all(b);
    engine_close(b->engine);
    b->engine = NULL;
    model_free(model);
    return r;
}

static bool bench_model(struct bench *b, const char *name)
{
    char dir[BENCH_DIR_BYTES];
    struct err e = {{0}};
    bool fast = true;
    printf("\n%s\n", name);
    int r = bench_models_find(name, dir, &e);
    if (r == 0)
        r = bench_dir(b, dir, &fast, &e);
    if (r < 0)
        printf("  skipped: %s\n", e.text);
    fflush(stdout);
    return fast;
}

/* ---- the command ---- */

static bool parse(int argc, char **argv, struct bench *b)
{
    static const struct option options[] = {{"seconds", required_argument, NULL, 's'},
                                            {"temperature", required_argument, NULL, 't'},
                                            {"least", required_argument, NULL, 'l'},
                                            {"drafts", no_argument, NULL, 'd'},
                                            {0}};
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        switch (c) {
        case 's':
            b->seconds = strtod(optarg, NULL);
            break;
        case 't':
            b->temperature = strtod(optarg, NULL);
            break;
        case 'l':
            b->least = strtod(optarg, NULL);
            break;
        case 'd':
            b->speculates = true;
            break;
        default:
            fputs("usage: schema_bench [options] [MODEL...]\n"
                  "  --seconds S      for each number of rows [8]\n"
                  "  --temperature T  [0]\n"
                  "  --least R        exit 1 below this ratio [0]\n"
                  "  --drafts         with n-gram and forced draft tokens\n",
                  stderr);
            return false;
        }
    }
    return true;
}

static void close_bench(struct bench *b)
{
    for (size_t i = 0; i < COUNT_OF(schemas); i++)
        grammar_cache_put(b->cache, b->grammars[i]);
    grammar_cache_free(b->cache);
    grammar_vocab_free(b->vocab);
    ledger_free(b->ledger);
    mailbox_free(b->mailbox);
    device_close(b->device);
}

int main(int argc, char **argv)
{
    struct bench b = {.seconds = 8, .good = true};
    struct mailbox_opts mailbox = {.messages_max = 2 * ROWS_MAX, .message_bytes = sizeof(void *)};
    if (!parse(argc, argv, &b))
        return 2;
    if (device_open_cpu(device_default_workers(), NULL, &b.device) < 0 ||
        mailbox_create(&mailbox, &b.mailbox) < 0 || ledger_create(ACCOUNT_NO_LIMIT, &b.ledger) < 0) {
        fputs("schema_bench: no memory, or no threads\n", stderr);
        return 1;
    }
    printf("kernels %s, %u workers\n", b.device->tier, b.device->workers);
    b.vocab = bench_vocab_made_up();
    open_grammars(&b);
    for (uint32_t i = 0; i < PROMPT; i++)
        b.prompt[i] = 300 + 7 * i;
    bool fast = true, chosen = optind < argc;
    size_t count = chosen ? (size_t)(argc - optind) : COUNT_OF(models_default);
    for (size_t i = 0; i < count; i++)
        fast = bench_model(&b, chosen ? argv[optind + (int)i] : models_default[i]) && fast;
    close_bench(&b);
    return fast && b.good ? 0 : 1;
}
