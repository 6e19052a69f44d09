/* model_bench.c - model_bench [--decode] [--prefill] [--steps] [--draft] [OPTIONS] [MODEL...]: the share
 * of whole models of what this machine can do.
 *
 * A MODEL is a directory, or SHAPE-FORM, a made-up checkpoint (tools/mkmodel), written into the build folder
 * once.
 *
 * * Decode: steps of 1 to 16 sequences after a prompt of 512 tokens (--prompt), as tokens per second and as
 *   bytes of weights read per second against reading memory.
 * * Prefill: that prompt in one step, as operations per second against the peak of f32 fused multiply-adds.
 * * Steps: one step of 0 to 512 prompt tokens beside 0 to 16 decoding sequences: a scheduler's choices.
 * * Draft: a sequence's step with 1 to 3 draft tokens after the known one, and the time to draft them with
 *   the MTP head, each against a step without a head. Prints the tokens per step that break even, and the
 *   tokens per step when every draft token is accepted.
 *
 * Bytes are the part of the checkpoint that a step must read: every matrix once; an embedding table only
 * where it is the head; of experts the ones that a token routes to (so with several sequences no figure is
 * given). Operations are two for each multiply-add with a weight; attention's and the delta rule's own are
 * left out. Each sample is a pair with its yardstick, one straight after the other, and shares are medians
 * over the pairs: a machine with other load slows both. */
#include "bench_models.h"
#include "bench_rows.h"
#include "model_path.h"
#include "yardstick_lines.h"

#include "compute/cpu/cpu_device.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/median.h"
#include "base/page_tokens.h"
#include "base/slice.h"
#include "model/model_work.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

struct row_sample;

enum { ROWS_MAX = 16, PROMPT = 512, PROMPT_MAX = 1 << 17, PAIRS_MAX = 15, PAIRS_MIN = 3, WARM = 1 };

static const uint32_t row_counts[] = {1, 2, 4, 8, ROWS_MAX};
static const uint32_t step_rows[] = {0, 1, 4, 8, ROWS_MAX};
static const uint32_t step_tokens[] = {0, 32, 64, 96, 128, 192, 256, 384, PROMPT};
enum { STEP_ROUNDS = 5 };
enum { DECODE_MAX = (PAIRS_MAX + WARM) * 5 };
enum { AHEAD_MAX = 3, DRAFT_ROUNDS = 101, DRAFT_MAX = DRAFT_ROUNDS * (2 + 3 + 4) };
/* Time for one figure. */
#define DECODE_NS  (3 * NS_PER_S)
#define PREFILL_NS (10 * NS_PER_S)

static const char *const models_default[] = {PLATEAU_SOURCE_DIR "/models/canary", "qwen3-0.6b-bf16",
                                             "qwen3.5-2b-8bit", "qwen3.5-2b-4bit"};

struct bench {
    enum compute_mode compute;
    enum kv_form kv_form;
    uint32_t rows; /* most that decode */
    struct device *device;
    struct yardsticks yard;
    uint32_t prompt; /* tokens of decode's and prefill's prompt */
    bool decode, prefill, steps, draft;
    bool unread; /* decode's prompt */
    unsigned flags;
};

/* ---- measuring ---- */

struct pairs {
    uint32_t count;
    double seconds[PAIRS_MAX], yard_seconds[PAIRS_MAX];
};

struct medians {
    double seconds;
    double of_yard; /* yardstick's seconds per ours */
};

static struct medians medians_of(struct pairs *p)
{
    double ratios[PAIRS_MAX];
    for (uint32_t i = 0; i < p->count; i++)
        ratios[i] = p->yard_seconds[i] / p->seconds[i];
    return (struct medians){.seconds = median_of(p->seconds, p->count),
                            .of_yard = median_of(ratios, p->count)};
}

static double seconds_since(uint64_t begin)
{
    return (double)(clock_now_ns() - begin) / (double)NS_PER_S;
}

static struct medians time_decode(struct bench *b, struct bench_rows *rows, uint32_t count)
{
    struct pairs p = {0};
    uint64_t end = clock_now_ns() + DECODE_NS;
    for (int i = 0; i < WARM; i++)
        bench_rows_decode(rows, count);
    while (p.count < PAIRS_MAX && (p.count < PAIRS_MIN || clock_now_ns() < end)) {
        p.yard_seconds[p.count] = yardsticks_read_once(&b->yard);
        uint64_t begin = clock_now_ns();
        bench_rows_decode(rows, count);
        p.seconds[p.count++] = seconds_since(begin);
    }
    return medians_of(&p);
}

static struct medians time_prefill(struct bench *b, struct bench_rows *rows)
{
    struct pairs p = {0};
    uint64_t end = clock_now_ns() + PREFILL_NS;
    while (p.count < PAIRS_MAX && (p.count < PAIRS_MIN || clock_now_ns() < end)) {
        p.yard_seconds[p.count] = yardsticks_fma_once(&b->yard);
        uint64_t begin = clock_now_ns();
        bench_rows_prefill(rows);
        p.seconds[p.count++] = seconds_since(begin);
    }
    return medians_of(&p);
}

/* Milliseconds, the median of rounds. */
static double time_step(struct bench_rows *rows, uint32_t decoding, uint32_t tokens)
{
    double ms[STEP_ROUNDS];
    bench_rows_mixed(rows, decoding, tokens);
    for (uint32_t i = 0; i < STEP_ROUNDS; i++) {
        uint64_t begin = clock_now_ns();
        bench_rows_mixed(rows, decoding, tokens);
        ms[i] = seconds_since(begin) * 1e3;
    }
    return median_of(ms, STEP_ROUNDS);
}

/* ---- printing ---- */

static void print_model(const char *name, const struct model_shape *s, double load_s)
{
    size_t cache = yardsticks_cache_bytes();
    const char *slash = strrchr(name, '/');
    printf("\n%s: %s, %u layers, %.2f billion parameters, loaded in %.1f s\n", slash ? slash + 1 : name,
           s->family, s->layers, (double)s->parameters * 1e-9, load_s);
    printf("  a token reads %.1f MiB of the checkpoint's %.1f MiB; packed they are %.1f MiB\n",
           (double)s->active_checkpoint_bytes / (1 << 20), (double)s->checkpoint_bytes / (1 << 20),
           (double)s->active_weight_bytes / (1 << 20));
    if (s->active_weight_bytes < 4 * (uint64_t)cache)
        printf("  these fit in four times the last-level cache (%zu MiB): part of what is read may come from "
               "there\n",
               cache >> 20);
}

static void print_decode(const struct bench *b, const struct model_shape *s, uint32_t rows, struct medians m)
{
    const struct model_work work = model_work_of(s);
    double step_bytes = (double)work.token_bytes, bytes_s = step_bytes / m.seconds;
    printf("  %6u %10.2f %10.1f", rows, m.seconds * 1e3, rows / m.seconds);
    /* Which experts several rows choose between them is not known here. */
    if (rows == 1 || !work.routed)
        printf(" %10.1f %9.0f%%\n", bytes_s * 1e-9, 100 * m.of_yard * step_bytes / (double)b->yard.bytes);
    else
        printf(" %10s %10s\n", "-", "-");
}

static void print_prefill(const struct bench *b, const struct model_shape *s, struct medians m)
{
    double flop = model_work_prefill(model_work_of(s), b->prompt);
    double yard_flop = yardsticks_fma_flop(&b->yard);
    printf("  prefill of %u tokens: %.2f s, %.1f tokens/s, %.1f GFLOP/s", b->prompt, m.seconds,
           b->prompt / m.seconds, flop / m.seconds * 1e-9);
    if (yard_flop > 0)
        printf(", %.0f%% of the multiply-adds' peak", 100 * m.of_yard * flop / yard_flop);
    printf("\n");
}

static void print_steps(struct bench_rows *rows)
{
    printf("  ms a step, decoding rows across\n  %6s", "prompt");
    for (size_t r = 0; r < COUNT_OF(step_rows); r++)
        printf(" %10u", step_rows[r]);
    for (size_t t = 0; t < COUNT_OF(step_tokens); t++) {
        printf("\n  %6u", step_tokens[t]);
        for (size_t r = 0; r < COUNT_OF(step_rows); r++)
            if (step_tokens[t] + step_rows[r] > 0)
                printf(" %10.1f", time_step(rows, step_rows[r], step_tokens[t]));
            else
                printf(" %10s", "-");
        fflush(stdout);
    }
    printf("\n");
}

/* ---- one model ---- */

static void measure(struct bench *b, const struct model_shape *s, struct bench_rows *rows)
{
    device_turn_begin(b->device);
    if (b->unread)
        bench_rows_invent(rows);
    else
        bench_rows_prefill(rows);
    bench_rows_spread(rows);
    if (b->decode) {
        printf("  %6s %10s %10s %10s %10s\n", "rows", "ms a step", "tokens/s", "GB/s", "of reading");
        for (size_t i = 0; i < COUNT_OF(row_counts) && row_counts[i] <= b->rows; i++) {
            print_decode(b, s, row_counts[i], time_decode(b, rows, row_counts[i]));
            fflush(stdout);
        }
    }
    if (b->prefill)
        print_prefill(b, s, time_prefill(b, rows));
    if (b->steps)
        print_steps(rows);
    device_turn_end(b->device);
}

static int bench_dir(struct bench *b, const char *name, const char *dir, struct err *e)
{
    uint32_t seqs_max = b->steps ? ROWS_MAX + 1 : b->rows;
    struct model_opts opts = {.tokens_max = (b->unread ? 0 : b->prompt) + ROWS_MAX,
                              .seqs_max = seqs_max,
                              .logits_max = seqs_max,
                              .parts = {.compute = b->compute, .kv_form = b->kv_form},
                              .device = b->device};
    struct model_shape s;
    struct model *model = NULL;
    struct bench_rows_opts rows_opts = {.rows = seqs_max, .prompt = b->prompt, .decode_max = DECODE_MAX};
    struct bench_rows *rows = NULL;
    int r = model_probe_at(dir, &opts.parts, &s, e);
    if (r == 0)
        r = bench_models_check_memory(
            s.weight_bytes +
                model_workspace_bytes(&s, opts.tokens_max, opts.seqs_max, opts.device->workers).device_bytes +
                bench_rows_bytes(&s, &rows_opts),
            e);
    uint64_t begin = clock_now_ns();
    if (r == 0)
        r = model_load_at(dir, &opts, &model, e);
    double load_s = seconds_since(begin);
    if (r == 0) {
        rows_opts.model = model;
        r = bench_rows_create(&rows_opts, &rows);
        if (r < 0)
            err_set(e, r, "no memory left for pages");
    }
    if (r == 0) {
        print_model(name, &s, load_s);
        measure(b, &s, rows);
    }
    bench_rows_free(rows);
    model_free(model);
    return r;
}

/* ---- drafts ---- */

/* One row of a model, with its head or without. */
struct one_row {
    struct model *model;
    struct bench_rows *rows;
};

static int open_row(struct bench *b, const char *dir, bool head, struct one_row *ret, struct err *e)
{
    struct model_opts opts = {.tokens_max = PROMPT,
                              .seqs_max = 1,
                              .logits_max = 1 + AHEAD_MAX,
                              .parts = {.compute = b->compute,
                                        .kv_form = b->kv_form,
                                        .mtp = head,
                                        .drafts_max = head ? AHEAD_MAX : 0},
                              .device = b->device};
    struct model_shape s;
    int r = model_probe_at(dir, &opts.parts, &s, e);
    if (r == 0 && head && !s.mtp)
        r = err_set(e, -ENOTSUP, "no drafts: %s", s.mtp_absent);
    if (r == 0)
        r = bench_models_check_memory(s.weight_bytes, e);
    if (r == 0)
        r = model_load_at(dir, &opts, &ret->model, e);
    struct bench_rows_opts rows = {ret->model, 1, PROMPT, DRAFT_MAX, opts.parts.drafts_max};
    return r == 0 ? bench_rows_create(&rows, &ret->rows) : r;
}

static void close_row(struct one_row *r)
{
    bench_rows_free(r->rows);
    model_free(r->model);
}

struct draft_times {
    double plain[DRAFT_ROUNDS], draft[AHEAD_MAX][DRAFT_ROUNDS], verify[AHEAD_MAX][DRAFT_ROUNDS];
};

/* Each round does everything once, so that a machine that has other work slows all of it. */
static void time_drafts(struct one_row *plain, struct one_row *head, struct draft_times *ret)
{
    for (uint32_t i = 0; i < DRAFT_ROUNDS; i++) {
        uint64_t begin = clock_now_ns();
        bench_rows_decode(plain->rows, 1);
        ret->plain[i] = seconds_since(begin);
        for (uint32_t ahead = 1; ahead <= AHEAD_MAX; ahead++) {
            begin = clock_now_ns();
            bench_rows_draft(head->rows, 1, ahead);
            ret->draft[ahead - 1][i] = seconds_since(begin);
            begin = clock_now_ns();
            bench_rows_verify(head->rows, 1, ahead, ahead);
            ret->verify[ahead - 1][i] = seconds_since(begin);
        }
    }
}

static void print_drafts(struct draft_times *t)
{
    double plain = median_of(t->plain, DRAFT_ROUNDS);
    printf("  a step without drafts: %.3f ms\n  %6s %10s %10s %12s %12s\n", plain * 1e3, "ahead", "draft ms",
           "step ms", "pays from", "all right");
    for (uint32_t ahead = 1; ahead <= AHEAD_MAX; ahead++) {
        double draft = median_of(t->draft[ahead - 1], DRAFT_ROUNDS);
        double verify = median_of(t->verify[ahead - 1], DRAFT_ROUNDS);
        printf("  %6u %10.3f %10.3f %6.2f tokens %11.2fx\n", ahead, draft * 1e3, verify * 1e3,
               (draft + verify) / plain, (1 + ahead) * plain / (draft + verify));
    }
}

static int bench_drafts(struct bench *b, const char *dir, struct err *e)
{
    static struct draft_times times;
    struct one_row plain = {0}, head = {0};
    int r = open_row(b, dir, false, &plain, e);
    if (r == 0)
        r = open_row(b, dir, true, &head, e);
    if (r == 0) {
        device_turn_begin(b->device);
        bench_rows_prefill(plain.rows);
        bench_rows_prefill(head.rows);
        time_drafts(&plain, &head, &times);
        device_turn_end(b->device);
        print_drafts(&times);
    }
    close_row(&plain);
    close_row(&head);
    return r;
}

static void bench_model(struct bench *b, const char *name)
{
    char dir[BENCH_DIR_BYTES];
    struct err e = {{0}};
    int r = bench_models_find(name, dir, &e);
    if (r == 0 && (b->decode || b->prefill || b->steps))
        r = bench_dir(b, name, dir, &e);
    if (r == 0 && b->draft)
        r = bench_drafts(b, dir, &e);
    if (r < 0)
        printf("\n%s: skipped: %s\n", name, e.text);
    fflush(stdout);
}

static void usage(FILE *out)
{
    fputs("usage: model_bench [options] [MODEL...]\n"
          "A MODEL is a directory or SHAPE-FORM as mkmodel --list has them: qwen3.5-2b-8bit.\n"
          "  --decode    only decode\n"
          "  --prefill   only prefill\n"
          "  --steps     only steps of prompts and decoding rows\n"
          "  --draft     only drafted tokens\n"
          "  --compute M f32, bf16, int16 or int8: the arithmetic of products (default auto)\n"
          "  --kv-dtype F f32, bf16 or int8: keys and values (default f32)\n"
          "  --rows N    sequences that decode at most, 1 to 16 (default 16)\n"
          "  --prompt N  tokens before decoding and of the prefill, a multiple of 32 (default 512)\n"
          "  --unread    decode without computing the prompt, whose keys and values are made up\n"
          "  --cpu X     kernels: avx2, avx512, vnni or best, as far as the machine has them (default best)\n"
          "  --help      this text\n",
          out);
}

static bool parse_prompt(const char *text, uint32_t *ret)
{
    uint64_t n;
    if (!slice_u64(slice_of(text), PROMPT_MAX, &n) || n == 0 || n % PAGE_TOKENS != 0)
        return false;
    *ret = (uint32_t)n;
    return true;
}

static bool parse_rows(const char *text, uint32_t *ret)
{
    uint64_t n;
    if (!slice_u64(slice_of(text), ROWS_MAX, &n) || n == 0)
        return false;
    *ret = (uint32_t)n;
    return true;
}

static bool parse_cpu(const char *text, unsigned *ret)
{
    static const struct {
        const char *name;
        unsigned flags;
    } tiers[] = {{"avx2", KERN_CPU_AVX2},
                 {"avx512", KERN_CPU_AVX2 | KERN_CPU_AVX512},
                 {"vnni", KERN_CPU_AVX2 | KERN_CPU_AVX512 | KERN_CPU_VNNI},
                 {"best", UINT_MAX}};
    for (size_t i = 0; i < COUNT_OF(tiers); i++) {
        if (strcmp(text, tiers[i].name) == 0) {
            *ret = tiers[i].flags;
            return true;
        }
    }
    return false;
}

/* False: stop with *status. */
static bool parse(int argc, char **argv, struct bench *b, int *status)
{
    static const struct option options[] = {
        {"decode", no_argument, NULL, 'd'},         {"prefill", no_argument, NULL, 'p'},
        {"steps", no_argument, NULL, 's'},          {"draft", no_argument, NULL, 'g'},
        {"prompt", required_argument, NULL, 'n'},   {"compute", required_argument, NULL, 'm'},
        {"kv-dtype", required_argument, NULL, 'k'}, {"rows", required_argument, NULL, 'r'},
        {"unread", no_argument, NULL, 'u'},         {"cpu", required_argument, NULL, 'c'},
        {"help", no_argument, NULL, 'h'},           {0}};
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (c == 'd') {
            b->decode = true;
        } else if (c == 'p') {
            b->prefill = true;
        } else if (c == 's') {
            b->steps = true;
        } else if (c == 'g') {
            b->draft = true;
        } else if (c == 'n' && parse_prompt(optarg, &b->prompt)) {
            continue;
        } else if (c == 'm' && compute_mode_parse(optarg, &b->compute)) {
            continue;
        } else if (c == 'k' && kv_form_parse(optarg, &b->kv_form)) {
            continue;
        } else if (c == 'r' && parse_rows(optarg, &b->rows)) {
            continue;
        } else if (c == 'c' && parse_cpu(optarg, &b->flags)) {
            continue;
        } else if (c == 'u') {
            b->unread = true;
        } else {
            *status = c == 'h' ? 0 : 2;
            usage(c == 'h' ? stdout : stderr);
            return false;
        }
    }
    if (!b->decode && !b->prefill && !b->steps && !b->draft)
        b->decode = b->prefill = b->draft = true;
    if (b->unread && (b->prefill || b->steps || b->draft)) {
        fputs("model_bench: --unread is for --decode alone\n", stderr);
        *status = 2;
        return false;
    }
    if (b->steps && b->prompt < PROMPT) {
        fprintf(stderr, "model_bench: --steps needs a prompt of at least %d tokens\n", PROMPT);
        *status = 2;
        return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    struct bench b = {.prompt = PROMPT, .rows = ROWS_MAX, .flags = UINT_MAX};
    int status = 0;
    if (!parse(argc, argv, &b, &status))
        return status;
    if (cpu_device_open(device_default_workers(), kern_cpu_flags() & b.flags, NULL, &b.device) < 0 ||
        yardsticks_init(&b.yard, cpu_device_of(b.device)->workers, YARDSTICK_BYTES) < 0) {
        fputs("model_bench: no memory, or no threads\n", stderr);
        return 1;
    }
    const struct kern_ops *ops = &cpu_device_of(b.device)->ops;
    printf("kernels %s, integers %s, bf16 %s, %u workers, compute %s, K and V %s\n", ops->tier, ops->int_tier,
           ops->bf16_tier, b.device->workers, compute_mode_name(b.compute), kv_form_name(b.kv_form));
    device_turn_begin(b.device);
    yardsticks_measure(&b.yard);
    device_turn_end(b.device);
    yardstick_lines(&b.yard);
    bool chosen = optind < argc;
    size_t count = chosen ? (size_t)(argc - optind) : COUNT_OF(models_default);
    for (size_t i = 0; i < count; i++)
        bench_model(&b, chosen ? argv[optind + (int)i] : models_default[i]);
    yardsticks_done(&b.yard);
    device_close(b.device);
    return 0;
}
