/* gpu_bench.c - gpu_bench [-d N] [-c MODE] [-p TOKENS] [-t TOKENS] [-k] [-u] MODEL...: tokens per second of
 * whole models on a GPU, in one run. -p: of a prompt; -t, up to eight times: at its end. With -k the time of
 * each kernel, too; with -u that of committing and decommitting a unit of memory beside steps.
 *
 * A MODEL is a directory. Prefill is a prompt in one step; its last tokens are computed once more, as after a
 * hit in the prefix cache. Decoding is steps of 1, 4 and 16 sequences after it, with logits and their way to
 * the host, and in brackets with the 36 best tokens of each row instead. Figures are medians. Bytes are the
 * packed weights that a token of one sequence reads. */
#include "bench_rows.h"
#include "gpu_units.h"

#include "compute/cuda/cuda.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/median.h"
#include "base/slice.h"
#include "model/model.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 16, PREFILLS = 5, STEPS = 48, PROFILED = 4, TAILS_MAX = 8, BEST = 36 };

struct options {
    enum compute_mode compute;
    uint32_t prompt, tails[TAILS_MAX], tail_count;
    bool kernels, units;
};

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

static double median_seconds(void (*f)(struct bench_rows *b, uint32_t count), struct bench_rows *b,
                             uint32_t count, uint32_t times)
{
    double seconds[STEPS];
    ASSERT(times <= STEPS);
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

static void measure(struct device *d, struct model *m, const char *name, const struct options *o, double load)
{
    static const uint32_t counts[] = {1, 4, ROWS};
    const struct model_shape *s = model_shape(m);
    const struct bench_rows_opts opts = {.device = d,
                                         .model = m,
                                         .rows = ROWS,
                                         .prompt = o->prompt,
                                         .decode_max = (2 * STEPS + PROFILED) * COUNT_OF(counts) +
                                                       ROWS * GPU_GRAPH_STEPS};
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
               median_seconds(bench_rows_tail, b, o->tails[i], STEPS) * 1e3);
    bench_rows_spread(b);
    if (o->units)
        gpu_graphs_print(b, ROWS);
    for (uint32_t i = 0; i < COUNT_OF(counts); i++) {
        double step = median_seconds(bench_rows_decode, b, counts[i], STEPS);
        bench_rows_want(b, BEST);
        double best = median_seconds(bench_rows_decode, b, counts[i], STEPS);
        bench_rows_want(b, 0);
        printf(" %u rows %.3f ms, %.1f tokens/s (%.3f, %.1f);", counts[i], step * 1e3, counts[i] / step,
               best * 1e3, counts[i] / best);
    }
    printf("\n");
    fflush(stdout);
    for (uint32_t i = 0; o->kernels && i < COUNT_OF(counts); i += 2)
        print_shares(d, counts[i] == 1 ? "1 row" : "16 rows", bench_rows_decode, b, counts[i], PROFILED);
    if (o->kernels) {
        print_shares(d, "last tokens", bench_rows_tail, b, o->tails[0], PROFILED);
        print_shares(d, "prefill", prefill, b, 0, 1);
    }
    if (o->units && gpu_units_print(d->domain, b) < 0)
        printf("  no memory for units\n");
    fflush(stdout);
    bench_rows_free(b);
}

static int bench(struct device *d, const char *dir, const struct options *o)
{
    struct err e = {{0}};
    struct model *m;
    const struct model_opts opts = {
        .tokens_max = o->prompt,
        .seqs_max = ROWS,
        .logits_max = ROWS,
        .context = o->prompt + 4096,
        .parts = {.backend = d->backend, .compute = o->compute, .kv_form = KV_AUTO},
        .device = d};
    uint64_t begun = clock_now_ns();
    int r = model_load(dir, &opts, &m, &e);
    if (r < 0) {
        fprintf(stderr, "gpu_bench: %s: %s\n", dir, e.text);
        return 1;
    }
    measure(d, m, dir, o, (double)(clock_now_ns() - begun) / (double)NS_PER_S);
    model_free(m);
    return 0;
}

int main(int argc, char **argv)
{
    struct options o = {.prompt = 2048};
    struct device *d;
    uint32_t index = 0;
    int failed = 0;
    for (int c; (c = getopt(argc, argv, "d:c:p:t:ku")) != -1;) {
        if (c == 'd')
            index = (uint32_t)atoi(optarg);
        else if (c == 'p')
            o.prompt = (uint32_t)atoi(optarg);
        else if (c == 't' && o.tail_count < TAILS_MAX)
            o.tails[o.tail_count++] = (uint32_t)atoi(optarg);
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
    if (cuda_device_open(index, &d) < 0) {
        printf("gpu_bench: skipped, no NVIDIA GPU is here\n");
        return 0;
    }
    for (int i = optind; i < argc; i++)
        failed |= bench(d, argv[i], &o);
    device_close(d);
    return failed;
}
