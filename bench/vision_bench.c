/* vision_bench.c - vision_bench [MODEL [WIDTHxHEIGHT...]]: the time of the vision encoder for an image, and
 * for one piece of its work.
 *
 * A MODEL as of model_bench; without one a made-up vision encoder of Qwen3.5's size (27 blocks of 1152).
 * Operations are two for each multiply-add, of the products and of attention; the peak of f32 fused
 * multiply-adds is measured before and after each image. The work is done piece by piece, as an engine does
 * it between steps, and each piece is timed: other requests wait for one piece at most. */
#include "bench_models.h"
#include "model_path.h"
#include "kernel/yardsticks.h"

#include "compute/cpu/cpu_device.h"

#include "base/check.h"
#include "base/clock.h"
#include "model/vision_encoder.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PIECES_MAX ((size_t)1 << 22)

struct bench {
    struct device *device;
    struct yardsticks yard;
    struct model *model;
    double *pieces; /* [PIECES_MAX]: seconds */
};

static double seconds_since(uint64_t begin)
{
    return (double)(clock_now_ns() - begin) / (double)NS_PER_S;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Seconds of the whole image; their pieces are left in b->pieces. */
static double encode(struct bench *b, size_t *pieces)
{
    uint64_t begin = clock_now_ns();
    *pieces = 0;
    for (bool done = false; !done;) {
        uint64_t from = clock_now_ns();
        done = vision_encoder_run(model_vision_encoder(b->model), 0);
        if (*pieces < PIECES_MAX)
            b->pieces[(*pieces)++] = seconds_since(from);
    }
    return seconds_since(begin);
}

/* Multiply-adds for such an image, in products and attention. A merger's product is a token's, so that of a
 * patch is its part. */
static double products(const struct vision_config *v, double patches)
{
    double n = v->hidden, merged = vision_merged(v);
    double merger = (merged * merged + merged * v->out) / (v->shape.merge * v->shape.merge);
    double patch = vision_patch_values(v) * n + v->depth * (4 * n * n + 2 * n * v->intermediate) +
                   (1 + v->deepstack_count) * merger;
    return patches * patch + patches * patches * 2 * v->depth * n;
}

static void print(struct bench *b, const struct model_image *p, double begin_s, double seconds, size_t pieces,
                  double yard_s)
{
    const struct model_shape *s = model_shape(b->model);
    uint64_t patches = (uint64_t)p->width * p->height / ((uint64_t)s->vision.patch * s->vision.patch);
    double flop = 2 * products(model_vision_encoder(b->model)->config, (double)patches);
    qsort(b->pieces, pieces, sizeof(b->pieces[0]), by_value);
    printf("  %u x %u: %.2f s, %.0f patches/s, %.1f GFLOP/s, %.0f%% of the multiply-adds' peak\n", p->width,
           p->height, seconds, (double)patches / seconds, flop / seconds * 1e-9,
           100 * flop / seconds / (yardsticks_fma_flop(&b->yard) / yard_s));
    printf(
        "    memory committed in %.1f ms; %zu pieces: median %.0f us, 99%% below %.0f us, longest %.0f us\n",
        begin_s * 1e3, pieces, b->pieces[pieces / 2] * 1e6, b->pieces[pieces * 99 / 100] * 1e6,
        b->pieces[pieces - 1] * 1e6);
    fflush(stdout);
}

static int measure(struct bench *b, uint32_t width, uint32_t height)
{
    const struct model_vision *v = &model_shape(b->model)->vision;
    uint32_t edge = v->patch * v->merge;
    size_t bytes = (size_t)width * height * 3, tokens = (size_t)(width / edge) * (height / edge), pieces;
    uint8_t *pixels = malloc(bytes);
    float *features = malloc(tokens * v->feature_floats * sizeof(float));
    struct model_image p = {{pixels, pixels}, width, height, dev_of_host(features)};
    int r = pixels && features ? 0 : -ENOMEM;
    for (size_t i = 0; r == 0 && i < bytes; i++)
        pixels[i] = (uint8_t)(i * 2654435761u >> 24);
    device_turn_begin(b->device);
    double yard_s = r == 0 ? yardsticks_fma_once(&b->yard) : 0;
    uint64_t begin = clock_now_ns();
    if (r == 0) {
        while ((r = vision_encoder_begin(model_vision_encoder(b->model), &p)) > 0)
            ;
    }
    double begin_s = seconds_since(begin);
    if (r == 0) {
        double seconds = encode(b, &pieces);
        yard_s = (yard_s + yardsticks_fma_once(&b->yard)) / 2;
        print(b, &p, begin_s, seconds, pieces, yard_s);
    }
    device_turn_end(b->device);
    free(pixels);
    free(features);
    return r;
}

static int load(struct bench *b, const char *name, struct err *e)
{
    char dir[BENCH_DIR_BYTES];
    struct model_opts opts = {
        .tokens_max = 64, .seqs_max = 1, .logits_max = 1, .parts = {.vision = true}, .device = b->device};
    struct model_shape s;
    int r = bench_models_find(name, dir, e);
    if (r == 0)
        r = model_probe_at(dir, &opts.parts, &s, e);
    if (r == 0 && !s.vision.present)
        r = err_set(e, -EINVAL, "it has no vision encoder");
    if (r == 0)
        r = bench_models_check_memory(s.weight_bytes + model_encode_bytes(&s, s.vision.pixels_max), e);
    return r == 0 ? model_load_at(dir, &opts, &b->model, e) : r;
}

static int run(struct bench *b, const char *name, char **sizes, int count)
{
    static char *usual[] = {"512x512", "1024x1024"};
    struct err e = {{0}};
    int r = load(b, name, &e);
    if (r < 0) {
        printf("%s: skipped: %s\n", name, e.text);
        return 0;
    }
    const struct model_vision *v = &model_shape(b->model)->vision;
    uint32_t edge = v->patch * v->merge;
    printf("%s: a vision encoder of %.1f MiB, images of %llu pixels at most\n", name,
           (double)v->weight_bytes / (1 << 20), (unsigned long long)v->pixels_max);
    for (int i = 0; i < (count ? count : 2); i++) {
        uint32_t w, h;
        const char *size = count ? sizes[i] : usual[i];
        if (sscanf(size, "%ux%u", &w, &h) != 2 || w == 0 || h == 0 || w % edge != 0 || h % edge != 0 ||
            (uint64_t)w * h > v->pixels_max)
            printf("  %s: skipped: edges are multiples of %u\n", size, edge);
        else if (measure(b, w, h) < 0)
            printf("  %s: skipped: no memory\n", size);
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct bench b = {.pieces = malloc(PIECES_MAX * sizeof(double))};
    if (!b.pieces || device_open_cpu(device_default_workers(), NULL, &b.device) < 0 ||
        yardsticks_init(&b.yard, cpu_device_of(b.device)->workers, YARDSTICK_BYTES) < 0) {
        fputs("vision_bench: no memory, or no threads\n", stderr);
        return 1;
    }
    printf("kernels %s, %u workers, compute f32\n", b.device->tier, b.device->workers);
    int r = run(&b, argc > 1 ? argv[1] : "qwen3.5-vision-bf16", argv + 2, MAX_OF(argc - 2, 0));
    model_free(b.model);
    yardsticks_done(&b.yard);
    device_close(b.device);
    free(b.pieces);
    return r;
}
