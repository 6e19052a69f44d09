/* gpu_bench.c - gpu_bench [-d N] [-c MODE] [-v FORM] [-p TOKENS] [-t TOKENS] [-r ROWS,...] [-m TOKENS] [-n
 * STEPS] [-i WIDTHxHEIGHT] [-k] [-u] MODEL...: tokens per second of whole models on a GPU, in one run. -v:
 * form of keys and values; -p: of a prompt; -t, up to eight times: at its end; -r: sequences of a step; -m:
 * the first tokens of a prompt, beside fewer sequences than the most; -n: steps that are timed. -i: the
 * vision encoder instead, with an image in one slice and in slices of 1 ms. With -k the time of each kernel,
 * too; with -u that of committing and decommitting a unit of memory beside steps.
 *
 * A MODEL is a directory. Prefill is a prompt in one step; its last tokens are computed once more, as after a
 * hit in the prefix cache. Decoding is steps of 1, 4 and 16 sequences after it, with logits and their way to
 * the host, and in brackets with samples on the device at temperature 0 and 1. Figures are medians. Bytes are
 * the packed weights that a token of one sequence reads. */
#include "bench_rows.h"
#include "gpu_image.h"
#include "gpu_units.h"
#include "model_path.h"

#include "compute/cuda/cuda.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/median.h"
#include "base/slice.h"
#include "compute/row_sample.h"
#include "model/model.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct row_sample;

enum { PREFILLS = 5, STEPS_MAX = 48, PROFILED = 4, TAILS_MAX = 8, COUNTS_MAX = 16, SETTINGS = 3 };

struct options {
    enum compute_mode compute;
    enum kv_form kv_form;
    uint32_t prompt, tails[TAILS_MAX], tail_count, steps;
    uint32_t counts[COUNTS_MAX], count_count, rows; /* rows: the largest count */
    uint32_t beside;                                /* tokens of a prompt; 0: none */
    uint32_t width, height;                         /* pixels of an image; 0: none */
    bool kernels, units;
};

/* Options of every function that is timed. */
static const struct options *options;

static double seconds_of(void (*f)(struct bench_rows *b, uint32_t count), struct bench_rows *b,
                         uint32_t count)
{
    uint64_t begun = clock_now_ns();
    f(b, count);
    return (double)(clock_now_ns() - begun) / (double)NS_PER_S;
}

static void prefill(struct bench_rows *b, uint32_t count)
{
    (void)count;
    bench_rows_prefill(b);
}

static void mixed(struct bench_rows *b, uint32_t count)
{
    bench_rows_mixed(b, count, options->beside);
}

static struct gpu_image *image; /* that encode() encodes */

static void encode(struct bench_rows *b, uint32_t count)
{
    (void)b;
    (void)count;
    (void)gpu_image_encode(image, UINT64_MAX);
}

static double median_seconds(void (*f)(struct bench_rows *b, uint32_t count), struct bench_rows *b,
                             uint32_t count, uint32_t times)
{
    double seconds[STEPS_MAX];
    ASSERT(times <= STEPS_MAX);
    for (uint32_t i = 0; i < times; i++)
        seconds[i] = seconds_of(f, b, count);
    return median_of(seconds, times);
}

/* The kernels of a step, the longest first; `times` steps. */
static void print_shares(struct device *d, const char *what, void (*f)(struct bench_rows *b, uint32_t count),
                         struct bench_rows *b, uint32_t count, uint32_t times)
{
    struct cuda_share shares[CUDA_SHARES_MAX];
    double all = 0;
    if (cuda_profile_begin(d) < 0)
        return;
    for (uint32_t i = 0; i < times; i++)
        f(b, count);
    uint32_t n = cuda_profile_end(d, shares);
    for (uint32_t i = 0; i < n; i++)
        all += shares[i].seconds;
    printf("  %s, kernels one after the other: %.3f ms\n", what, all / times * 1e3);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t most = i;
        for (uint32_t j = i + 1; j < n; j++)
            most = shares[j].seconds > shares[most].seconds ? j : most;
        const struct cuda_share s = shares[most];
        shares[most] = shares[i];
        printf("    %-18s %6.2f %%  %8.1f us  x %llu\n", s.kernel, 100 * s.seconds / all,
               s.seconds / (double)s.launches * 1e6, (ull)(s.launches / times));
    }
}

/* Steps without samples, and with samples at temperature 0 and 1; the first two are not timed. */
static void print_decoding(struct bench_rows *b, uint32_t count)
{
    double seconds[SETTINGS];
    for (uint32_t i = 0; i < SETTINGS; i++) {
        const struct row_sample sample = {.part = 0.5,
                                          .wanted = 1,
                                          .temperature = i == 1 ? 0 : 1,
                                          .window = 27.631021f,
                                          .top_p = 1,
                                          .mask = ROW_SAMPLE_ALL};
        bench_rows_samples(b, i > 0 ? &sample : NULL);
        bench_rows_decode(b, count);
        bench_rows_decode(b, count);
        seconds[i] = median_seconds(bench_rows_decode, b, count, options->steps);
    }
    bench_rows_samples(b, NULL);
    printf(" %u rows %.3f ms, %.1f tokens/s (%.3f, %.1f; %.3f, %.1f);", count, seconds[0] * 1e3,
           count / seconds[0], seconds[1] * 1e3, count / seconds[1], seconds[2] * 1e3, count / seconds[2]);
}

static void measure(struct device *d, struct model *m, const char *name, const struct options *o, double load)
{
    const struct model_shape *s = model_shape(m);
    const struct bench_rows_opts opts = {.device = d,
                                         .model = m,
                                         .rows = o->rows,
                                         .prompt = o->prompt,
                                         .decode_max =
                                             (SETTINGS * (o->steps + 2) + PROFILED) * o->count_count +
                                             (o->units ? o->rows * GPU_GRAPH_STEPS : 0)};
    struct bench_rows *b;
    int r = bench_rows_create(&opts, &b);
    if (r < 0) {
        printf("%s: no memory for its rows\n", name);
        return;
    }
    prefill(b, 0);
    double once = median_seconds(prefill, b, 0, PREFILLS);
    printf("%s, %s, %.2f GB read per token, loaded in %.1f s: prefill of %u tokens %.1f ms, %.0f tokens/s;",
           name, compute_mode_name(s->compute), (double)s->active_weight_bytes / 1e9, load, o->prompt,
           once * 1e3, o->prompt / once);
    for (uint32_t i = 0; i < o->tail_count; i++)
        printf(" its last %u %.3f ms;", o->tails[i],
               median_seconds(bench_rows_tail, b, o->tails[i], o->steps) * 1e3);
    bench_rows_spread(b);
    if (o->units)
        gpu_graphs_print(b, o->rows);
    for (uint32_t i = 0; i < o->count_count; i++)
        print_decoding(b, o->counts[i]);
    for (uint32_t i = 0; i < o->count_count && o->beside > 0; i++)
        if (o->counts[i] < o->rows)
            printf(" %u rows beside %u tokens %.3f ms;", o->counts[i], o->beside,
                   median_seconds(mixed, b, o->counts[i], o->steps) * 1e3);
    printf("\n");
    fflush(stdout);
    for (uint32_t i = 0; o->kernels && i < o->count_count; i++) {
        char what[32];
        snprintf(what, sizeof(what), "%u rows", o->counts[i]);
        print_shares(d, what, bench_rows_decode, b, o->counts[i], PROFILED);
    }
    if (o->kernels) {
        print_shares(d, "last tokens", bench_rows_tail, b, o->tails[0], PROFILED);
        print_shares(d, "prefill", prefill, b, 0, 1);
    }
    if (o->units && gpu_units_print(d->domain, b) < 0)
        printf("  no memory for units\n");
    fflush(stdout);
    bench_rows_free(b);
}

static void measure_image(struct device *d, struct model *m, const char *name, const struct options *o)
{
    int r = gpu_image_create(d, m, o->width, o->height, &image);
    if (r < 0) {
        printf("%s: no image of %u x %u: %s\n", name, o->width, o->height, strerror(-r));
        return;
    }
    const double first = seconds_of(encode, NULL, 0), once = median_seconds(encode, NULL, 0, PREFILLS);
    const double longest = gpu_image_encode(image, NS_PER_MS);
    printf("%s, %s: an image of %u x %u: first %.1f ms, then %.2f ms; slices of 1 ms take up to %.2f ms\n",
           name, compute_mode_name(model_shape(m)->compute), o->width, o->height, first * 1e3, once * 1e3,
           longest * 1e3);
    if (o->kernels)
        print_shares(d, "image", encode, NULL, 0, 1);
    fflush(stdout);
    gpu_image_free(image);
}

static int bench(struct device *d, const char *dir, const struct options *o)
{
    struct err e = {{0}};
    struct model *m;
    const struct model_opts opts = {.tokens_max = MAX_OF(o->prompt, o->rows + o->beside),
                                    .seqs_max = o->rows,
                                    .logits_max = o->rows,
                                    .context = o->prompt + 4096,
                                    .parts = {.backend = d->backend,
                                              .compute = o->compute,
                                              .kv_form = o->kv_form,
                                              .vision = o->width > 0,
                                              .image_pixels_max = (uint64_t)o->width * o->height},
                                    .device = d};
    uint64_t begun = clock_now_ns();
    int r = model_load_at(dir, &opts, &m, &e);
    if (r < 0) {
        fprintf(stderr, "gpu_bench: %s: %s\n", dir, e.text);
        return 1;
    }
    if (o->width > 0)
        measure_image(d, m, dir, o);
    else
        measure(d, m, dir, o, (double)(clock_now_ns() - begun) / (double)NS_PER_S);
    model_free(m);
    return 0;
}

/* Numbers with commas between them. False: there are too many, or some are 0. */
static bool parse_counts(char *text, struct options *o)
{
    o->count_count = o->rows = 0;
    for (char *at = strtok(text, ","); at; at = strtok(NULL, ",")) {
        uint32_t count = (uint32_t)atoi(at);
        if (o->count_count == COUNTS_MAX || count == 0)
            return false;
        o->counts[o->count_count++] = count;
        o->rows = MAX_OF(o->rows, count);
    }
    return o->rows > 0;
}

int main(int argc, char **argv)
{
    struct options o = {.kv_form = KV_AUTO,
                        .prompt = 2048,
                        .steps = STEPS_MAX,
                        .counts = {1, 4, 16},
                        .count_count = 3,
                        .rows = 16};
    struct device *d;
    uint32_t index = 0;
    int failed = 0;
    for (int c; (c = getopt(argc, argv, "d:c:v:p:t:r:m:n:i:ku")) != -1;) {
        if (c == 'd')
            index = (uint32_t)atoi(optarg);
        else if (c == 'p')
            o.prompt = (uint32_t)atoi(optarg);
        else if (c == 't' && o.tail_count < TAILS_MAX)
            o.tails[o.tail_count++] = (uint32_t)atoi(optarg);
        else if (c == 'm')
            o.beside = (uint32_t)atoi(optarg);
        else if (c == 'n')
            o.steps = MIN_OF(MAX_OF((uint32_t)atoi(optarg), 1u), (uint32_t)STEPS_MAX);
        else if (c == 'v' && kv_form_parse(optarg, &o.kv_form))
            continue;
        else if (c == 'i' && sscanf(optarg, "%ux%u", &o.width, &o.height) == 2)
            continue;
        else if (c == 'r' && parse_counts(optarg, &o))
            continue;
        else if (c == 'k')
            o.kernels = true;
        else if (c == 'u')
            o.units = true;
        else if (c != 'c' || !compute_mode_parse(optarg, &o.compute))
            return 2;
    }
    if (o.tail_count == 0)
        o.tails[o.tail_count++] = PAGE_TOKENS;
    for (uint32_t i = 0; i < o.tail_count; i++)
        if (o.tails[i] < 1 || o.tails[i] > o.prompt)
            return 2;
    if (o.beside > o.prompt)
        return 2;
    options = &o;
    if (cuda_device_open(index, &d) < 0) {
        printf("gpu_bench: skipped, no NVIDIA GPU is here\n");
        return 0;
    }
    for (int i = optind; i < argc; i++)
        failed |= bench(d, argv[i], &o);
    device_close(d);
    return failed;
}
