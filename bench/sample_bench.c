/* sample_bench.c - sample_bench [VOCABULARY]: what a sample from a whole row of logits takes, by its
 * settings.
 *
 * Two rows: normally distributed logits, as random weights give; and such a row with two hundred tokens that
 * stand out, as a trained model gives. Printed is the least of many samples on one thread: of making the
 * row's blocks ready and weighing them, which an engine shares out to its workers; and of the sample. */
#include "base/arena.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/rng.h"
#include "compute/row_sample.h"
#include "sample/sampler.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 50, VOCABULARY = 151936, STAND_OUT = 200, BLOCKS_EACH = 8 };

static float normal(uint64_t at)
{
    double u = rng_uniform_at(1, 2 * at), v = rng_uniform_at(1, 2 * at + 1);
    return (float)(sqrt(-2 * log(1 - u)) * cos(2 * M_PI * v));
}

static void fill(float *row, uint32_t vocab, bool trained)
{
    for (uint32_t i = 0; i < vocab; i++)
        row[i] = normal(i) * (trained ? 2.5f : 1);
    for (uint32_t i = 0; trained && i < STAND_OUT; i++)
        row[(uint64_t)i * vocab / STAND_OUT] = 18 - 0.3f * (float)i - (i > 0 ? 1.5f : 0);
}

struct bench {
    struct arena *arena;
    struct sampler_scratch *scratch;
    float *row, *copy;
    struct sampler_blocks blocks;
    uint32_t vocab;
};

struct times {
    double ready_ms, sample_ms;
};

static void make_ready(const struct sampler *s, const struct sampler_row *row, struct sampler_blocks *blocks)
{
    const uint32_t count = DIV_UP(row->vocab, ROW_SAMPLE_BLOCK);
    for (uint32_t k = 0; k < count; k++)
        blocks->most[k] = sampler_ready(s, row, k);
    blocks->weighed = sampler_weighs(s, NULL);
    if (!blocks->weighed)
        return;
    memset(blocks->bins, 0, SAMPLER_BINS * sizeof(*blocks->bins));
    for (uint32_t k = 0; k < count; k += BLOCKS_EACH)
        sampler_weigh(s, row, blocks, k, MIN_OF(k + BLOCKS_EACH, count));
}

static struct times measure(struct bench *b, const struct sampler_params *p)
{
    struct sampler *s;
    uint64_t ready = UINT64_MAX, sampled = UINT64_MAX;
    ASSERT(sampler_create(b->arena, p, 64, &s) == 0);
    for (uint32_t i = 0; i < SAMPLES; i++) {
        struct sampled token;
        const struct sampler_row row = {b->copy, b->vocab, NULL, NULL};
        memcpy(b->copy, b->row, b->vocab * sizeof(float));
        uint64_t began = clock_now_ns();
        make_ready(s, &row, &b->blocks);
        uint64_t between = clock_now_ns();
        sampler_sample_ready(s, b->scratch, &row, &b->blocks, i, i, &token);
        uint64_t end = clock_now_ns();
        ready = MIN_OF(ready, between - began);
        sampled = MIN_OF(sampled, end - between);
    }
    return (struct times){(double)ready / 1e6, (double)sampled / 1e6};
}

static void print_row(struct bench *b, const char *name)
{
    static const struct setting {
        const char *name;
        float temperature, top_p;
        uint32_t top_k;
        bool logprobs;
    } settings[] = {{"temperature 0", 0, 1, 0},
                    {"temperature 1", 1, 1, 0},
                    {"top_k 20", 1, 1, 20},
                    {"top_p 0.95", 1, 0.95f, 0},
                    {"top_k 20, top_p 0.95", 1, 0.95f, 20},
                    {"temperature 0.7, top_k 20, top_p 0.8", 0.7f, 0.8f, 20},
                    {"temperature 0, 5 logprobs", 0, 1, 0, true}};
    printf("%s, %u tokens\n", name, b->vocab);
    for (uint32_t i = 0; i < COUNT_OF(settings); i++) {
        struct sampler_params p;
        sampler_params_default(&p);
        p.temperature = settings[i].temperature;
        p.top_p = settings[i].top_p;
        p.top_k = settings[i].top_k;
        p.logprobs = settings[i].logprobs;
        p.top_logprobs = p.logprobs ? 5 : 0;
        struct times t = measure(b, &p);
        printf("  %-38s ready %7.3f ms, sample %7.3f ms\n", settings[i].name, t.ready_ms, t.sample_ms);
    }
}

int main(int argc, char **argv)
{
    struct bench b = {.vocab = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : VOCABULARY};
    if (argc > 2 || b.vocab < STAND_OUT || b.vocab > 10000000) {
        fprintf(stderr, "usage: sample_bench [VOCABULARY], of %d to 10000000 tokens\n", STAND_OUT);
        return 2;
    }
    ASSERT(arena_create(&(struct arena_opts){(size_t)b.vocab * 64 + (1 << 20), 0, NULL}, &b.arena) == 0);
    ASSERT(sampler_scratch_create(b.arena, b.vocab, &b.scratch) == 0);
    b.row = ARENA_ARRAY(b.arena, float, b.vocab);
    b.copy = ARENA_ARRAY(b.arena, float, b.vocab);
    b.blocks.most = ARENA_ARRAY(b.arena, float, DIV_UP(b.vocab, ROW_SAMPLE_BLOCK));
    b.blocks.weights = ARENA_ARRAY(b.arena, double, DIV_UP(b.vocab, ROW_SAMPLE_BLOCK));
    b.blocks.bins = ARENA_ARRAY(b.arena, uint32_t, SAMPLER_BINS);
    ASSERT(b.row && b.copy && b.blocks.most && b.blocks.weights && b.blocks.bins);
    fill(b.row, b.vocab, false);
    print_row(&b, "logits of random weights");
    fill(b.row, b.vocab, true);
    print_row(&b, "logits as a trained model's");
    arena_free(b.arena);
    return 0;
}
