/* schema_bench.c - schema_bench [options] [MODEL...]: decoding under a grammar, against decoding without.
 *
 * A MODEL is as in model_bench. The vocabulary is made up: 151,643 tokens and an end token. One engine
 * answers the same prompts in turns, with a grammar and without, each turn straight after the other, so that
 * other load on the machine slows both. Every answer has ANSWER tokens. Sequences of a batch have different
 * grammars, prompts and seeds. There are two sets of grammars:
 *
 *     schema   JSON schemas that ask for lists that go on
 *     tools    text, and calls of strict tools where the model begins one (tool_choice auto): it begins none
 *
 * Printed are medians over rounds: tokens per second of both, their ratio, and the ratio of processor times,
 * which other load moves less; and the mean time of a mask. Exit status 1: a ratio is below --least. */
#include "bench_models.h"
#include "bench_vocab.h"
#include "model_path.h"

#include "base/charge.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/median.h"
#include "base/page_tokens.h"
#include "base/threads/mailbox.h"
#include "compute/device.h"
#include "constraint/grammar_cache.h"
#include "constraint/grammar_source.h"
#include "engine/engine.h"
#include "engine/engine_numbers.h"
#include "engine/engine_opts.h"
#include "engine/job_spec.h"
#include "engine/stream.h"
#include "memory/ledger.h"
#include "model/model.h"
#include "spec/drafting.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct engine_numbers;
struct model;

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

/* A chat format whose calls begin with a text, as tool_source.h writes it. */
#define TOOLS(parallel, tools)                                                                               \
    "{\"shape\":\"calls\",\"arguments\":\"json_call\",\"markers\":{\"section_begin\":[\"<tool_call>\"],"     \
    "\"section_end\":[\"</tool_call>\"]},\"specials\":[],\"name_key\":\"name\",\"arguments_key\":"           \
    "\"arguments\",\"tools\":[" tools "],\"parallel\":" parallel "}"
#define TOOL(name, members)                                                                                  \
    "{\"name\":\"" name "\",\"strict\":true,\"parameters\":{\"type\":\"object\",\"properties\":{" members    \
    "},\"additionalProperties\":false}}"
#define PATH  "\"path\":{\"type\":\"string\",\"maxLength\":200}"
#define LINES "\"lines\":{\"type\":\"integer\",\"minimum\":1}"
static const char *const tools[] = {
    TOOLS("true", TOOL("read_file", PATH "," LINES)),
    TOOLS("false", TOOL("read_file", PATH) "," TOOL("list", PATH "," LINES)),
    TOOLS("true", TOOL("get_weather", "\"city\":{\"type\":\"string\"},\"unit\":{\"enum\":[\"c\",\"k\"]}")),
    TOOLS("true", TOOL("run", "\"command\":{\"type\":\"array\",\"items\":{\"type\":\"string\"}}")),
};

enum { SETS = 2, GRAMMARS = 4 };
_Static_assert(COUNT_OF(schemas) == GRAMMARS && COUNT_OF(tools) == GRAMMARS, "each set has as many");
static const struct {
    const char *name;
    enum grammar_kind kind;
    const char *const *texts;
} sets[SETS] = {{"schema", GRAMMAR_JSON_SCHEMA, schemas}, {"tools", GRAMMAR_TOOLS, tools}};

static const char *const models_default[] = {"wide-qwen3-bf16", "qwen3-0.6b-8bit"};

struct bench {
    struct ledger *ledger;
    struct device *device;
    struct mailbox *mailbox;
    struct grammar_vocab *vocab;
    struct grammar_cache *cache;
    struct grammar_entry *grammars[SETS][GRAMMARS];
    struct engine *engine;
    uint32_t prompt[PROMPT];
    /* Options. */
    double seconds, temperature, least;
    bool speculates, good;
    const char *only; /* a set's name; NULL: all sets */
};

static void open_grammars(struct bench *b)
{
    struct err e = {{0}};
    struct charge charge = account_charge(ledger_root(b->ledger));
    struct grammar_cache_opts opts = {.vocab = b->vocab, .bytes_max = 32 << 20, .charge = &charge};
    ASSERT(grammar_cache_create(&opts, &b->cache) == 0);
    for (size_t i = 0; i < SETS * GRAMMARS; i++) {
        struct grammar_source source = {sets[i / GRAMMARS].kind,
                                        slice_of(sets[i / GRAMMARS].texts[i % GRAMMARS])};
        if (grammar_cache_get(b->cache, &source, &(struct grammar_source_opts){0},
                              &b->grammars[i / GRAMMARS][i % GRAMMARS], &e) < 0) {
            fprintf(stderr, "schema_bench: %s\n", e.text);
            exit(1);
        }
    }
}

/* ---- one turn ---- */

/* `grammars`: of a set; NULL: without. */
static void submit(struct bench *b, uint32_t row, uint32_t round, struct grammar_entry **grammars)
{
    struct err e = {{0}};
    struct stream *stream;
    struct job_spec spec = {.prompt = b->prompt, .prompt_count = PROMPT - row, .max_tokens = ANSWER};
    sampler_params_default(&spec.sampling);
    spec.sampling.temperature = (float)b->temperature;
    spec.sampling.seed = round * ROWS_MAX + row;
    spec.speculative = b->speculates;
    spec.grammar = grammars ? grammars[(row + round) % GRAMMARS] : NULL;
    struct stream_opts opts = {.id = request_id_new(), .wake = b->mailbox};
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

static struct seconds time_turn(struct bench *b, uint32_t rows, uint32_t round,
                                struct grammar_entry **grammars)
{
    uint64_t began_ns = clock_now_ns();
    double began_cpu = cpu_seconds();
    for (uint32_t i = 0; i < rows; i++)
        submit(b, i, round, grammars);
    for (uint32_t left = rows; left > 0;) {
        struct stream *stream;
        mailbox_wait(b->mailbox, &stream, UINT64_MAX);
        left -= take(b, stream);
    }
    return (struct seconds){(double)(clock_now_ns() - began_ns) / (double)NS_PER_S,
                            cpu_seconds() - began_cpu};
}

static double mask_us(const struct engine_numbers *before, const struct engine_numbers *after)
{
    uint64_t masks = after->masks - before->masks;
    return (double)(after->mask_ns - before->mask_ns) / 1e3 / (double)MAX_OF(masks, (uint64_t)1);
}

/* Returns the ratio. */
static double measure(struct bench *b, uint32_t rows, size_t set)
{
    double ratio[ROUNDS_MAX], cpu[ROUNDS_MAX], bound[ROUNDS_MAX], unbound[ROUNDS_MAX];
    struct grammar_entry **with = b->grammars[set];
    struct engine_numbers before, after;
    uint32_t n = 0;
    uint64_t end_ns = clock_now_ns() + (uint64_t)(b->seconds * (double)NS_PER_S);
    engine_numbers(b->engine, &before);
    for (uint32_t i = 0; n < ROUNDS_MAX && (n < ROUNDS_MIN || clock_now_ns() < end_ns); i++) {
        /* Each goes first as often as the other. */
        struct seconds turn[2];
        turn[0] = time_turn(b, rows, i, i % 2 ? with : NULL);
        turn[1] = time_turn(b, rows, i, i % 2 ? NULL : with);
        const struct seconds *in = &turn[i % 2 == 0], *out = &turn[i % 2];
        bound[n] = in->wall;
        unbound[n] = out->wall;
        ratio[n] = out->wall / in->wall;
        cpu[n] = out->cpu / in->cpu;
        n += i >= WARM;
    }
    engine_numbers(b->engine, &after);
    double tokens = (double)rows * ANSWER, median = median_of(ratio, n);
    printf("  %8s %6u %6.1f %14.1f %14.1f %9.2f%% %9.2f%% %8.1f\n", sets[set].name, rows, b->temperature,
           tokens / median_of(unbound, n), tokens / median_of(bound, n), 100 * median,
           100 * median_of(cpu, n), mask_us(&before, &after));
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
    printf("  %8s %6s %6s %14s %14s %10s %10s %8s\n", "grammars", "rows", "temp", "tokens/s free", "bound",
           "ratio", "cpu", "mask us");
    for (size_t set = 0; set < SETS; set++)
        for (size_t i = 0; i < COUNT_OF(row_counts); i++)
            if (!b->only || strcmp(b->only, sets[set].name) == 0)
                fast = measure(b, row_counts[i], set) >= b->least && fast;
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
    int r = model_probe_at(dir, &opts.parts, &s, e);
    if (r == 0)
        r = bench_models_check_memory(s.weight_bytes + (64 << 20), e);
    if (r == 0)
        r = model_load_at(dir, &opts, &model, e);
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
    static const struct option options[] = {
        {"seconds", required_argument, NULL, 's'}, {"temperature", required_argument, NULL, 't'},
        {"least", required_argument, NULL, 'l'},   {"drafts", no_argument, NULL, 'd'},
        {"only", required_argument, NULL, 'o'},    {0}};
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
        case 'o':
            b->only = optarg;
            break;
        default:
            fputs("usage: schema_bench [options] [MODEL...]\n"
                  "  --seconds S      for each number of rows [8]\n"
                  "  --temperature T  [0]\n"
                  "  --least R        exit 1 below this ratio [0]\n"
                  "  --drafts         with n-gram and forced draft tokens\n"
                  "  --only SET       schema or tools [both]\n",
                  stderr);
            return false;
        }
    }
    return true;
}

static void close_bench(struct bench *b)
{
    for (size_t i = 0; i < SETS * GRAMMARS; i++)
        grammar_cache_put(b->cache, b->grammars[i / GRAMMARS][i % GRAMMARS]);
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
