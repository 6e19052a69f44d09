/* image_bench.c - image_bench [FILE...]: the time from an image's bytes to the pixels that a model reads, on
 * one core.
 *
 * Measures generated images, or the files. First decoding, hashing and resizing together as a server does
 * them, to 1 megapixel at most. Then resizing alone, with the plain code as the yardstick. Time is the
 * processor's, the best of several runs, so that other load on the machine disturbs little. --write DIR
 * writes the generated images, for other programs to be measured with (bench/image_others.py). */
#include "base/check.h"
#include "encode.h"
#include "vision/decode.h"
#include "vision/image.h"
#include "vision/resize.h"
#include "vision/smart_size.h"

#include <getopt.h>
#include <string.h>
#include <time.h>

enum { RUNS = 5 };
static const struct smart_bounds bounds = {32, 65536, 1 << 20};

static uint64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static size_t peak, held;

static int take(void *owner, size_t bytes)
{
    (void)owner;
    held += bytes;
    peak = MAX_OF(peak, held);
    return 0;
}

static void give(void *owner, size_t bytes)
{
    (void)owner;
    held -= bytes;
}

static void run(const char *name, struct slice bytes)
{
    struct decode_limits limits = DECODE_LIMITS_DEFAULT;
    struct charge charge = {take, give, NULL};
    struct decode_info info;
    struct err e;
    uint64_t best = UINT64_MAX;
    uint32_t width = 0, height = 0;
    limits.bytes_max = SIZE_MAX;
    peak = 0;
    if (decode_measure(bytes, &limits, &info, &e) < 0) {
        printf("%-24s %s\n", name, e.text);
        return;
    }
    for (int i = 0; i < RUNS; i++) {
        struct image *p;
        uint64_t begin = cpu_ns();
        if (decode_still(bytes, &limits, &bounds, &charge, &p, &e) < 0) {
            printf("%-24s %s\n", name, e.text);
            return;
        }
        best = MIN_OF(best, cpu_ns() - begin);
        width = p->width;
        height = p->height;
        image_unref(p);
    }
    double megapixels = (double)info.width * info.height / 1e6;
    printf("%-24s %5u x %-5u to %4u x %-4u %7.1f ms %7.1f megapixels/s %7.1f MiB at most\n", name, info.width,
           info.height, width, height, (double)best / 1e6, megapixels / ((double)best / 1e9),
           (double)peak / (1 << 20));
}

static void resize_once(const struct encode_pixels *from, uint8_t *to, uint32_t width, uint32_t height,
                        bool plain)
{
    struct arena *a;
    struct resize *r;
    struct resize_opts o = {from->width, from->height, width, height, to, RESIZE_BICUBIC, plain};
    struct arena_opts opts = {.bytes_max = resize_bytes(&o)};
    ASSERT(arena_create(&opts, &a) == 0 && resize_create(a, &o, &r) == 0);
    for (uint32_t y = 0; y < from->height; y++)
        resize_row(r, from->rgb + (size_t)y * from->width * 3);
    arena_free(a);
}

static void run_resize(const struct encode_pixels *from)
{
    struct smart_size s;
    ASSERT(smart_size(from->width, from->height, &bounds, &s, NULL) == 0);
    uint8_t *to = malloc((size_t)s.width * s.height * 3);
    ASSERT(to);
    double ms[2];
    for (int plain = 0; plain < 2; plain++) {
        uint64_t best = UINT64_MAX;
        for (int i = 0; i < RUNS; i++) {
            uint64_t begin = cpu_ns();
            resize_once(from, to, s.width, s.height, plain);
            best = MIN_OF(best, cpu_ns() - begin);
        }
        ms[plain] = (double)best / 1e6;
    }
    printf("%-24s %5u x %-5u to %4u x %-4u %7.1f ms, plainly %.1f ms\n", "resizing alone", from->width,
           from->height, s.width, s.height, ms[0], ms[1]);
    free(to);
}

static void keep(const char *dir, const char *name, uint32_t width, struct slice bytes)
{
    char path[512];
    if (!dir)
        return;
    snprintf(path, sizeof(path), "%s/%u-%s", dir, width, name);
    FILE *f = fopen(path, "wb");
    ASSERT(f && fwrite(bytes.ptr, 1, bytes.len, f) == bytes.len && fclose(f) == 0);
}

static void run_made(uint32_t width, uint32_t height, const char *dir)
{
    struct encode_pixels p = encode_scene(width, height);
    struct {
        const char *name;
        struct slice bytes;
    } made[] = {
        {"baseline.jpg", encode_jpeg(&p, &(struct encode_jpeg_opts){{2, 2}, false})},
        {"progressive.jpg", encode_jpeg(&p, &(struct encode_jpeg_opts){{2, 2}, true})},
        {"rgb.png", encode_png(&p)},
        {"lossy.webp", encode_webp(&p, false)},
        {"lossless.webp", encode_webp(&p, true)},
        {"colours.gif", encode_gif(&p)},
    };
    for (size_t i = 0; i < COUNT_OF(made); i++) {
        run(made[i].name, made[i].bytes);
        keep(dir, made[i].name, width, made[i].bytes);
        free((char *)made[i].bytes.ptr);
    }
    run_resize(&p);
    free(p.rgb);
}

static void run_file(const char *path)
{
    char *bytes = NULL;
    size_t len = 0, n;
    char block[65536];
    FILE *f = fopen(path, "rb"), *all = open_memstream(&bytes, &len);
    if (!f || !all) {
        perror(path);
        return;
    }
    while ((n = fread(block, 1, sizeof(block), f)) > 0)
        ASSERT(fwrite(block, 1, n, all) == n);
    ASSERT(fclose(all) == 0);
    fclose(f);
    const char *slash = strrchr(path, '/');
    run(slash ? slash + 1 : path, (struct slice){bytes, len});
    free(bytes);
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"write", required_argument, NULL, 'w'}, {0}};
    const char *dir = NULL;
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (c != 'w') {
            fprintf(stderr, "image_bench [--write DIR] [FILE...]\n");
            return 2;
        }
        dir = optarg;
    }
    for (int i = optind; i < argc; i++)
        run_file(argv[i]);
    if (optind == argc) {
        run_made(1152, 864, dir);
        run_made(2304, 1728, dir);
        run_made(4000, 3000, dir);
    }
    return 0;
}
