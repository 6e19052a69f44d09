/* golden.c - golden [options] DIR...: runs DIR/golden.json against the model in DIR.
 *
 * Each prompt runs whole and alone first and is compared with the reference. Then the same sequences run
 * again in chunks and in batches, and every logit must have the same bits: chunks and batches must not change
 * output. Where the file has lists of an MTP head, all this runs with the head at work. Then its drafts are
 * compared, and the greedy tokens are computed again by steps that verify drafts. */
#include "model_path.h"

#include "golden/drafts.h"
#include "golden/images.h"
#include "golden/vectors.h"

#include "base/check.h"
#include "compute/cpu/cpu_device.h"
#include "compute/cuda/cuda.h"
#include "compute/fake/fake.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A single prompt gets companions, made from it by rotation, so that batches have different rows. */
#define SEQUENCES_MIN   8
#define SEQUENCES_MAX   64u
#define STEP_TOKENS_MAX 4096u
#define ROWS_MAX        64u
/* Above this many tokens the variants are a selection instead of every chunk with every batch. */
#define TOKENS_FEW  4000
#define CHUNK_WHOLE UINT32_MAX
/* Memory of a fake device. */
#define FAKE_BYTES ((uint64_t)8 << 30)

struct options {
    enum compute_mode compute;
    enum kv_form kv_form;
    uint32_t chunk, batch, threads, sequences; /* 0: the default */
    unsigned cpu_flags;
    bool fake, cuda, spread, experts_cpu;
    uint32_t cuda_index;
    const char *model; /* NULL: the golden's own directory */
};

struct variant {
    uint32_t chunk, batch;
};

struct golden {
    const struct options *opts;
    const char *dir;
    struct golden_file file;
    struct device *device, *cpu; /* cpu: NULL without --experts-cpu */
    struct model *model;
    struct runner *runner;
    struct runner_sequence *sequences;
    struct compare *compares;       /* [file.case_count] */
    struct image_view *views;       /* [file.case_count] */
    struct runner_sequence *shared; /* [sequence_count]: those of one variant */
    uint32_t sequence_count, sequence_max, prompt_max, tokens_max;
    uint64_t tokens;
    uint32_t vector_tokens;
};

static bool parse_cuda(const char *text, uint32_t *ret)
{
    for (uint32_t i = 0; i < CUDA_DEVICES_MAX; i++) {
        *ret = i;
        if (strcmp(text, cuda_device_name(i)) == 0)
            return true;
    }
    return false;
}

static void usage(FILE *out)
{
    fputs("usage: golden [options] DIR...\n"
          "Runs DIR/golden.json against the model in DIR and prints the largest error and the first wrong "
          "token.\n"
          "Exit status 1 if a bound is broken, 2 if something cannot be read.\n"
          "  --model DIR    the model, where it does not lie beside golden.json\n"
          "  --compute X    f32, bf16, fp8, int16 or int8 (default int16, on a GPU bf16)\n"
          "  --kv-dtype X   f32, bf16, int8, fp8, int4 or auto (default f32)\n"
          "  --chunk N      only this chunk of prompt tokens beside the whole prompt\n"
          "  --batch N      only this many sequences at once (default 1, 3 and 8)\n"
          "  --sequences N  a file with fewer prompts gets companions up to this many (default 8)\n"
          "  --threads N    workers (default: what the machine gives)\n"
          "  --cpu X        kernels: ref, avx2 or best, as far as the machine has them (default best)\n"
          "  --device X     cpu, cuda:N (a GPU), or fake: a device that finds what leaks through the compute "
          "contract\n"
          "  --experts-cpu  experts in the machine's memory, the rest on the device\n"
          "  --spread       each prompt in one of the variants, and with drafts one distance ahead\n"
          "  --help         this text\n",
          out);
}

/* ---- sequences ---- */

static int add_sequence(struct golden *g, const struct golden_case *c, uint32_t turn)
{
    uint32_t n = c->prompt.count - MIN_OF(turn, c->prompt.count - 1);
    uint32_t *prompt = calloc(n, sizeof(*prompt)),
             *generated = calloc(c->greedy.count + 1, sizeof(*generated));
    struct runner_sequence *q = &g->sequences[g->sequence_count++];
    *q = (struct runner_sequence){.prompt = prompt,
                                  .prompt_count = n,
                                  .generate = c->greedy.count,
                                  .generated = generated,
                                  .arg = turn == 0 ? &g->compares[c - g->file.cases] : NULL};
    if (!prompt || !generated)
        return -ENOMEM;
    for (uint32_t i = 0; i < n; i++)
        prompt[i] = c->prompt.ids[(i + 9 * turn) % c->prompt.count];
    g->sequence_max = MAX_OF(g->sequence_max, n + c->greedy.count);
    g->prompt_max = MAX_OF(g->prompt_max, n);
    g->tokens += n + c->greedy.count;
    return 0;
}

/* All texts of the vectors run in one step. */
static void count_vectors(struct golden *g)
{
    for (uint32_t i = 0; i < g->file.vector_count; i++)
        g->vector_tokens += g->file.vectors[i].ids.count;
}

static int make_sequences(struct golden *g)
{
    count_vectors(g);
    if (g->file.case_count == 0)
        return 0;
    uint32_t least = g->opts->sequences ? g->opts->sequences : SEQUENCES_MIN;
    uint32_t n = MAX_OF(g->file.case_count, least);
    g->compares = calloc(g->file.case_count, sizeof(g->compares[0]));
    g->sequences = calloc(n, sizeof(g->sequences[0]));
    g->views = calloc(g->file.case_count, sizeof(g->views[0]));
    g->shared = calloc(n, sizeof(g->shared[0]));
    int r = g->compares && g->sequences && g->views && g->shared ? 0 : -ENOMEM;
    for (uint32_t i = 0; r == 0 && i < n; i++) {
        const struct golden_case *c = &g->file.cases[i % g->file.case_count];
        g->compares[i % g->file.case_count].c = c;
        r = add_sequence(g, c, i / g->file.case_count);
    }
    return r;
}

/* The sequences of the cases themselves see the images; to their companions placeholders are ordinary
 * tokens. */
static int see_images(struct golden *g, struct err *e)
{
    int r = 0;
    for (uint32_t i = 0; r == 0 && i < g->file.case_count; i++) {
        r = image_view_make(g->model, g->dir, &g->compares[i], &g->views[i], e);
        g->sequences[i].grids = &g->views[i].grid;
        g->sequences[i].grid_count = g->views[i].count;
    }
    return r;
}

static void see(struct runner_sequence *q, uint32_t position, const float *logits, uint32_t vocab)
{
    if (q->arg)
        compare_prompt(q->arg, position, logits, vocab);
}

/* ---- running ---- */

static bool compare_reference(struct golden *g)
{
    double error = 0, sum = 0;
    uint64_t logits = 0, tokens = 0;
    uint32_t wrong = 0;
    for (uint32_t i = 0; i < g->file.case_count; i++) {
        struct compare *k = &g->compares[i];
        compare_greedy(k, g->sequences[i].generated);
        if (!(k->error_max <= error))
            error = k->error_max;
        logits += k->logits_compared;
        sum += k->error_sum;
        tokens += k->tokens_compared;
        wrong += k->wrong;
        if (k->wrong)
            printf("%s: %s: %s\n", g->dir, k->c->name, k->message);
    }
    double mean = logits ? sum / (double)logits : 0;
    printf("%s: %u prompts whole: %llu logits compared, largest error %.3g, mean %.2g; %llu tokens compared, "
           "%u prompts "
           "wrong\n",
           g->dir, g->file.case_count, (unsigned long long)logits, error, mean, (unsigned long long)tokens,
           wrong);
    const struct model_shape *s = model_shape(g->model);
    return wrong == 0 && mean <= compare_mean_bound(s->family, s->compute, s->kv_form);
}

static void say_features(const struct golden *g)
{
    uint32_t count = 0, images = 0;
    double error = 0;
    for (uint32_t i = 0; i < g->file.case_count; i++) {
        const struct compare *k = &g->compares[i];
        images += g->views[i].count;
        count += k->features_compared;
        if (!(k->feature_error_max <= error))
            error = k->feature_error_max;
    }
    if (images)
        printf("%s: %u images: %u values of features compared, largest error %.3g\n", g->dir, images, count,
               error);
}

static const char *chunk_text(uint32_t chunk, char ret[16])
{
    if (chunk == CHUNK_WHOLE)
        return "whole";
    snprintf(ret, 16, "%u", chunk);
    return ret;
}

/* With --spread: whether sequence i belongs to part `part` of `parts`. Each part has long and short prompts:
 * they are dealt out in the order of their lengths. */
static bool is_part(const struct golden *g, uint32_t i, uint32_t part, uint32_t parts)
{
    uint32_t longer = 0, length = g->sequences[i].prompt_count;
    for (uint32_t k = 0; k < g->sequence_count; k++) {
        uint32_t other = g->sequences[k].prompt_count;
        longer += other > length || (other == length && k < i);
    }
    return !g->opts->spread || longer % parts == part % parts;
}

/* Runs the sequences cut and grouped otherwise, and compares the bits of their logits. */
static int run_variant(struct golden *g, struct variant v, uint32_t number, uint32_t variants,
                       const uint64_t *hashes, bool *same)
{
    char text[16];
    uint32_t different = 0, first = 0, count = 0;
    for (uint32_t i = 0; i < g->sequence_count; i++) {
        if (is_part(g, i, number, variants))
            g->shared[count++] = g->sequences[i];
    }
    int r = runner_run(g->runner, g->shared, count, v.chunk, v.batch, NULL);
    if (r < 0)
        return r;
    for (uint32_t i = 0, k = 0; i < g->sequence_count; i++) {
        if (is_part(g, i, number, variants) && g->shared[k++].hash != hashes[i] && different++ == 0)
            first = i;
    }
    printf("%s: chunk %s, batch %u, %u sequences: ", g->dir, chunk_text(v.chunk, text), v.batch, count);
    if (different)
        printf("%u have other bits, the first is number %u\n", different, first);
    else
        printf("the same bits\n");
    *same &= different == 0;
    return 0;
}

static uint32_t list_variants(const struct golden *g, struct variant ret[16])
{
    static const uint32_t chunks[] = {CHUNK_WHOLE, 32, 64, 96}, batches[] = {1, 3, 8};
    static const struct variant selection[] = {{32, 8}, {64, 3}, {96, 1}};
    uint32_t count = 0;
    const struct options *o = g->opts;
    if (!o->chunk && !o->batch && g->tokens > TOKENS_FEW) {
        memcpy(ret, selection, sizeof(selection));
        return COUNT_OF(selection);
    }
    for (size_t c = 0; c < COUNT_OF(chunks); c++) {
        for (size_t b = 0; b < COUNT_OF(batches); b++) {
            struct variant v = {o->chunk ? o->chunk : chunks[c], o->batch ? o->batch : batches[b]};
            bool repeats = (o->chunk && c > 0) || (o->batch && b > 0);
            if (!repeats && !(v.chunk == CHUNK_WHOLE && v.batch == 1))
                ret[count++] = v;
        }
    }
    return count;
}

static int run(struct golden *g, bool *good)
{
    struct variant variants[16];
    uint64_t *hashes = calloc(g->sequence_count, sizeof(*hashes));
    if (!hashes)
        return -ENOMEM;
    int r = runner_run(g->runner, g->sequences, g->sequence_count, CHUNK_WHOLE, 1, see);
    for (uint32_t i = 0; i < g->sequence_count; i++)
        hashes[i] = g->sequences[i].hash;
    *good = r == 0 && compare_reference(g);
    say_features(g);
    uint32_t count = list_variants(g, variants);
    for (uint32_t i = 0; r == 0 && i < count; i++)
        r = run_variant(g, variants[i], i, count, hashes, good);
    free(hashes);
    return r;
}

/* ---- the MTP head ---- */

struct drafted {
    double error_max;
    uint32_t logits, tokens, wrong;
    uint64_t made[DRAFTS_MAX], right[DRAFTS_MAX];
};

static void add_drafts(const struct golden *g, const struct drafts *one, struct drafted *all)
{
    const struct compare *k = &one->compare;
    if (!(k->error_max <= all->error_max))
        all->error_max = k->error_max;
    all->logits += k->logits_compared;
    all->tokens += k->tokens_compared;
    all->wrong += k->wrong;
    for (int i = 0; i < DRAFTS_MAX; i++) {
        all->made[i] += one->made[i];
        all->right[i] += one->right[i];
    }
    if (k->wrong)
        printf("%s: mtp of %s: %s\n", g->dir, k->c->name, k->message);
}

static void say_drafts(const struct golden *g, uint32_t ahead, const struct drafted *all)
{
    printf("%s: mtp, %u ahead: %u logits compared, largest error %.3g; %u tokens compared, %u prompts wrong; "
           "drafts "
           "right",
           g->dir, ahead, all->logits, all->error_max, all->tokens, all->wrong);
    for (uint32_t i = 0; i < ahead; i++)
        printf(" %.3f", all->made[i] ? (double)all->right[i] / (double)all->made[i] : 0);
    printf("\n");
}

/* The next cases of a distance from number `*from` on, at most DRAFT_ROWS_MAX. */
static uint32_t next_cases(const struct golden *g, uint32_t ahead, uint32_t *from,
                           const struct golden_case *ret[DRAFT_ROWS_MAX])
{
    uint32_t count = 0;
    for (; *from < g->file.case_count && count < DRAFT_ROWS_MAX; ++*from) {
        if (g->file.cases[*from].mtp_argmax.count > 0 && is_part(g, *from, ahead, DRAFTS_MAX))
            ret[count++] = &g->file.cases[*from];
    }
    return count;
}

/* Whatever the chunks and however far ahead, the first draft is the same. */
static int run_drafts(struct golden *g, bool *good)
{
    static const uint32_t chunks[DRAFTS_MAX] = {CHUNK_WHOLE, 32, 96};
    int r = 0;
    for (uint32_t ahead = 1; r == 0 && ahead <= DRAFTS_MAX; ahead++) {
        const struct drafts_opts opts = {
            .model = g->model, .tokens_max = g->tokens_max, .chunk = chunks[ahead - 1], .ahead = ahead};
        const struct golden_case *cases[DRAFT_ROWS_MAX];
        struct drafted all = {0};
        for (uint32_t from = 0, count; r == 0 && (count = next_cases(g, ahead, &from, cases)) > 0;) {
            struct drafts found[DRAFT_ROWS_MAX];
            r = drafts_run(&opts, cases, count, found);
            for (uint32_t i = 0; r == 0 && i < count; i++)
                add_drafts(g, &found[i], &all);
        }
        say_drafts(g, ahead, &all);
        *good &= all.wrong == 0;
    }
    return r;
}

/* ---- vectors ---- */

static int run_vectors(struct golden *g, bool *good, struct err *e)
{
    const char *dir = g->opts->model ? g->opts->model : g->dir;
    struct vectors_result v;
    int r = vectors_run(g->model, dir, &g->file, &v, e);
    if (r < 0)
        return r;
    const char *what = g->file.score_count == 0                     ? "vectors"
                       : g->file.score_count < g->file.vector_count ? "vectors and scores"
                                                                    : "scores";
    printf("%s: %u %s compared, largest error %.3g; %u %s wrong", g->dir, g->file.vector_count, what,
           v.error_max, v.wrong, what);
    if (v.wrong)
        printf(", the first is number %u", v.first_wrong);
    printf("; in chunks and together: ");
    if (v.different)
        printf("%u have other bits\n", v.different);
    else
        printf("the same bits\n");
    *good &= v.wrong == 0 && v.different == 0;
    return 0;
}

/* ---- set-up ---- */

static int open_device(const struct options *o, struct device **ret)
{
    uint32_t workers = o->threads ? o->threads : device_default_workers();
    const struct fake_opts fake = {.bytes = FAKE_BYTES, .workers = workers};
    if (o->cuda)
        return cuda_device_open(o->cuda_index, ret);
    return o->fake ? fake_device_open(&fake, ret) : cpu_device_open(workers, o->cpu_flags, NULL, ret);
}

/* All layers are on the device. */
static int place_experts(struct golden *g, struct model_opts *opts, struct err *e)
{
    struct placement_sizes sizes;
    struct model_shape shape;
    struct model_parts parts = opts->parts;
    parts.backend = g->device->backend;
    parts.sizes = &sizes;
    int r = model_probe_at(g->opts->model ? g->opts->model : g->dir, &parts, &shape, e);
    if (r == 0)
        r = cpu_device_open(device_default_workers(), g->opts->cpu_flags, NULL, &g->cpu);
    if (r < 0)
        return r;
    placement_all(&sizes, 1, &opts->parts.placement);
    placement_experts(&opts->parts.placement, 0);
    opts->cpu = g->cpu;
    return 0;
}

/* On the CPU the same on every machine: what is not quantised computes in f32. */
static enum compute_mode mode_of(const struct options *o)
{
    return o->compute == COMPUTE_AUTO && !o->cuda ? COMPUTE_INT16 : o->compute;
}

static int load(struct golden *g, struct err *e)
{
    const struct options *o = g->opts;
    uint32_t rows = MAX_OF(MAX_OF(o->batch, 8), g->file.vector_count);
    int r = open_device(o, &g->device);
    if (r < 0)
        return err_set(e, r, "cannot open the device: %s", strerror(-r));
    char eagle[4096];
    snprintf(eagle, sizeof(eagle), "%s/eagle", o->model ? o->model : g->dir);
    struct model_opts opts = {
        .tokens_max = MAX_OF(MIN_OF(MAX_OF(g->prompt_max * rows, rows), STEP_TOKENS_MAX), g->vector_tokens),
        .seqs_max = rows,
        .logits_max = STEP_TOKENS_MAX,
        .parts = {.compute = mode_of(o),
                  .kv_form = o->kv_form,
                  .vision = true,
                  .mtp = g->file.mtp > 0,
                  .eagle = g->file.mtp > 0 && access(eagle, F_OK) == 0 ? eagle : NULL,
                  .drafts_max = g->file.mtp > 0 ? DRAFTS_MAX : 0},
        .device = g->device};
    if (o->experts_cpu)
        r = place_experts(g, &opts, e);
    if (r < 0)
        return r;
    r = model_load_at(o->model ? o->model : g->dir, &opts, &g->model, e);
    if (r < 0)
        return r;
    g->tokens_max = opts.tokens_max;
    for (uint32_t i = 0; i < g->file.case_count; i++)
        g->compares[i].bound = compare_bound(model_shape(g->model)->compute, model_shape(g->model)->kv_form);
    struct runner_opts runner = {g->model, opts.tokens_max, rows, g->sequence_max};
    return runner_create(&runner, &g->runner);
}

static void close_golden(struct golden *g)
{
    for (uint32_t i = 0; g->views && i < g->file.case_count; i++)
        image_view_free(&g->views[i]);
    runner_free(g->runner);
    model_free(g->model);
    device_close(g->device);
    device_close(g->cpu);
    for (uint32_t i = 0; i < g->sequence_count; i++) {
        free((void *)g->sequences[i].prompt);
        free(g->sequences[i].generated);
    }
    free(g->views);
    free(g->shared);
    free(g->sequences);
    free(g->compares);
    golden_file_free(&g->file);
}

static void say_skipped(const struct golden *g)
{
    if (g->file.mtp && !model_shape(g->model)->mtp)
        printf("%s: %u mtp parts skipped: %s\n", g->dir, g->file.mtp, model_shape(g->model)->mtp_absent);
}

static int run_dir(const struct options *o, const char *dir, bool *good)
{
    char path[4096];
    struct err e = {{0}};
    struct golden g = {.opts = o, .dir = dir};
    snprintf(path, sizeof(path), "%s/golden.json", dir);
    int r = golden_file_load(path, &g.file, &e);
    if (r == 0)
        r = make_sequences(&g);
    if (r == 0)
        r = load(&g, &e);
    if (r == 0) {
        const struct model_shape *s = model_shape(g.model);
        printf("%s: kernels %s, %u workers, compute %s, K and V %s%s\n", dir, g.device->tier,
               g.device->workers, compute_mode_name(s->compute), kv_form_name(s->kv_form),
               s->experts_bytes > 0 ? ", experts in the machine" : "");
        device_turn_begin(g.device);
        r = see_images(&g, &e);
        if (r == 0 && g.file.case_count > 0)
            r = run(&g, good);
        if (r == 0 && g.file.vector_count > 0)
            r = run_vectors(&g, good, &e);
        if (r == 0 && model_shape(g.model)->mtp)
            r = run_drafts(&g, good);
        device_turn_end(g.device);
        say_skipped(&g);
    }
    if (r < 0)
        fprintf(stderr, "golden: %s: %s\n", dir, e.text[0] ? e.text : strerror(-r));
    close_golden(&g);
    return r;
}

static bool parse_count(const char *text, uint32_t max, uint32_t *ret)
{
    uint64_t n;
    if (!slice_u64(slice_of(text), max, &n) || n == 0)
        return false;
    *ret = (uint32_t)n;
    return true;
}

/* Which of the machine's instructions the kernels may use. */
static bool parse_cpu(const char *text, unsigned *ret)
{
    static const struct {
        const char *name;
        unsigned flags;
    } cpus[] = {{"ref", 0}, {"avx2", KERN_CPU_AVX2}, {"best", ~0u}};
    for (size_t i = 0; i < COUNT_OF(cpus); i++) {
        if (strcmp(text, cpus[i].name) == 0) {
            *ret = cpus[i].flags & kern_cpu_flags();
            return true;
        }
    }
    return false;
}

static bool parse_kv_form(const char *name, enum kv_form *ret)
{
    if (strcmp(name, "auto") != 0)
        return kv_form_parse(name, ret);
    *ret = KV_AUTO;
    return true;
}

/* 0 to go on, 1 to stop well, -1 on a wrong option. */
static int parse_options(int argc, char **argv, struct options *o)
{
    static const struct option longs[] = {
        {"model", required_argument, NULL, 'm'},
        {"compute", required_argument, NULL, 'c'},
        {"kv-dtype", required_argument, NULL, 'v'},
        {"chunk", required_argument, NULL, 'k'},
        {"batch", required_argument, NULL, 'b'},
        {"threads", required_argument, NULL, 't'},
        {"cpu", required_argument, NULL, 'u'},
        {"device", required_argument, NULL, 'd'},
        {"spread", no_argument, NULL, 's'},
        {"experts-cpu", no_argument, NULL, 'x'},
        {"sequences", required_argument, NULL, 'q'},
        {"help", no_argument, NULL, 'h'},
        {0},
    };
    for (int c; (c = getopt_long(argc, argv, "h", longs, NULL)) != -1;) {
        bool ok = true;
        switch (c) {
        case 'm':
            o->model = optarg;
            break;
        case 'c':
            ok = compute_mode_parse(optarg, &o->compute);
            break;
        case 'v':
            ok = parse_kv_form(optarg, &o->kv_form);
            break;
        case 'k':
            ok = parse_count(optarg, STEP_TOKENS_MAX, &o->chunk);
            break;
        case 'b':
            ok = parse_count(optarg, ROWS_MAX, &o->batch);
            break;
        case 'q':
            ok = parse_count(optarg, SEQUENCES_MAX, &o->sequences);
            break;
        case 't':
            ok = parse_count(optarg, 256, &o->threads);
            break;
        case 'd':
            o->fake = strcmp(optarg, "fake") == 0;
            o->cuda = parse_cuda(optarg, &o->cuda_index);
            ok = o->fake || o->cuda || strcmp(optarg, "cpu") == 0;
            break;
        case 's':
            o->spread = true;
            break;
        case 'x':
            o->experts_cpu = true;
            break;
        case 'u':
            ok = parse_cpu(optarg, &o->cpu_flags);
            break;
        case 'h':
            usage(stdout);
            return 1;
        default:
            return -1;
        }
        if (!ok) {
            fprintf(stderr, "golden: '%s' is not a value for that option\n", optarg);
            return -1;
        }
    }
    return optind < argc ? 0 : -1;
}

int main(int argc, char **argv)
{
    struct options o = {.cpu_flags = kern_cpu_flags()};
    int parsed = parse_options(argc, argv, &o);
    if (parsed != 0) {
        if (parsed < 0)
            usage(stderr);
        return parsed < 0 ? 2 : 0;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    int status = 0;
    for (int i = optind; i < argc; i++) {
        bool good = true;
        if (run_dir(&o, argv[i], &good) < 0)
            status = 2;
        else if (!good && status == 0)
            status = 1;
    }
    return status;
}
