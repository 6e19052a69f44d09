/* What libraries take from the heap while they decode is never more than was charged for it. The heap is this program's own malloc, which
 * counts. */
#include "base/check.h"
#include "test_pictures.h"
#include "vision/format.h"

#include <errno.h>
#include <malloc.h>
#include <stdio.h>

#include <jpeglib.h>
#include <webp/encode.h>

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *p, size_t bytes);
void __libc_free(void *p);

static struct {
    bool on;
    long live, peak;         /* bytes of the heap since it is on */
    long charged, uncovered; /* the charge at present; the most that live was above it */
    long most_charged;
} heap;

static void moved(long bytes)
{
    heap.live += bytes;
    heap.peak = MAX_OF(heap.peak, heap.live);
    heap.uncovered = MAX_OF(heap.uncovered, heap.live - heap.charged);
}

static void *counted(void *p)
{
    if (heap.on && p)
        moved((long)malloc_usable_size(p));
    return p;
}

#define EVERYWHERE __attribute__((visibility("default")))

EVERYWHERE void *malloc(size_t bytes)
{
    return counted(__libc_malloc(bytes));
}

EVERYWHERE void *calloc(size_t count, size_t bytes)
{
    return counted(__libc_calloc(count, bytes));
}

EVERYWHERE void *realloc(void *p, size_t bytes)
{
    if (heap.on && p)
        moved(-(long)malloc_usable_size(p));
    return counted(__libc_realloc(p, bytes));
}

EVERYWHERE void free(void *p)
{
    if (heap.on && p)
        moved(-(long)malloc_usable_size(p));
    __libc_free(p);
}

static int take(void *owner, size_t bytes)
{
    (void)owner;
    heap.charged += (long)bytes;
    heap.most_charged = MAX_OF(heap.most_charged, heap.charged);
    return 0;
}

static void give(void *owner, size_t bytes)
{
    (void)owner;
    heap.charged -= (long)bytes;
}

static void check(const struct format *f, struct slice bytes, const char *name)
{
    struct err e = {{0}};
    struct charge charge = {take, give, NULL};
    struct format_work work = {.bytes = bytes, .charge = &charge};
    struct picture *p = NULL;
    assert_true(f->is(bytes));
    if (f->measure(bytes, &work.size, &e) < 0)
        fail_msg("%s: %s", name, e.text);
    assert_int_equal(picture_create(64, 64, 1, NULL, &p), 0);
    struct raster_opts opts = {work.size.width, work.size.height, work.size.orientation, p, 0, NULL};
    struct arena_opts arena = {.bytes_max = raster_bytes(&opts) + f->arena_bytes(&work.size)};
    assert_int_equal(arena_create(&arena, &work.arena), 0);
    assert_int_equal(raster_create(work.arena, &opts, &work.to, &e), 0);
    memset(&heap, 0, sizeof(heap));
    heap.on = true;
    int r = f->decode(&work, &e);
    heap.on = false;
    if (r < 0)
        fail_msg("%s: %s", name, e.text);
    print_message("%-28s %ux%u: %ld bytes of %ld\n", name, work.size.width, work.size.height, heap.peak,
                  heap.most_charged);
    assert_true(heap.uncovered <= 0);
    assert_int_equal(heap.live, 0);
    assert_int_equal(heap.charged, 0);
    raster_done(work.to);
    arena_free(work.arena);
    picture_let_go(p);
}

static const struct format *format_of(struct slice bytes)
{
    const struct format *all[] = {&format_png, &format_jpeg, &format_webp, &format_gif};
    for (size_t i = 0; i < COUNT_OF(all); i++)
        if (all[i]->is(bytes))
            return all[i];
    fail_msg("no format");
    return NULL;
}

TEST(small_pictures_of_every_kind)
{
    FILE *table = test_picture_table("expected.txt");
    char line[512], name[64];
    while (fgets(line, sizeof(line), table)) {
        assert_int_equal(sscanf(line, "%63s", name), 1);
        struct slice bytes = test_picture(name);
        check(format_of(bytes), bytes, name);
        free((char *)bytes.ptr);
    }
    fclose(table);
}

/* Smooth, sharp and noisy parts, so that encoders use all they have. */
static uint8_t *scene(uint32_t width, uint32_t height)
{
    uint8_t *rgb = malloc((size_t)width * height * 3);
    uint32_t seed = 1;
    assert_non_null(rgb);
    for (uint32_t y = 0; y < height; y++)
        for (uint32_t x = 0; x < width; x++)
            for (uint32_t c = 0; c < 3; c++) {
                seed = seed * 1664525 + 1013904223;
                uint32_t kind = (x / 64 + y / 64) % 3;
                uint32_t v = kind == 0 ? x * (c + 1) + y : kind == 1 ? seed >> 24 : (x / 7 % 2) * 200 + c;
                rgb[((size_t)y * width + x) * 3 + c] = (uint8_t)v;
            }
    return rgb;
}

static struct slice jpeg_of(const uint8_t *rgb, uint32_t width, uint32_t height, const int sampling[2],
                            bool progressive)
{
    struct jpeg_compress_struct c;
    struct jpeg_error_mgr errors;
    unsigned char *to = NULL;
    unsigned long len = 0;
    c.err = jpeg_std_error(&errors);
    jpeg_create_compress(&c);
    jpeg_mem_dest(&c, &to, &len);
    c.image_width = width;
    c.image_height = height;
    c.input_components = 3;
    c.in_color_space = JCS_RGB;
    jpeg_set_defaults(&c);
    c.comp_info[0].h_samp_factor = sampling[0];
    c.comp_info[0].v_samp_factor = sampling[1];
    if (progressive)
        jpeg_simple_progression(&c);
    jpeg_start_compress(&c, TRUE);
    while (c.next_scanline < height) {
        JSAMPROW row = (JSAMPROW)(rgb + (size_t)c.next_scanline * width * 3);
        jpeg_write_scanlines(&c, &row, 1);
    }
    jpeg_finish_compress(&c);
    jpeg_destroy_compress(&c);
    return (struct slice){(char *)to, len};
}

TEST(large_jpegs)
{
    static const int samplings[][2] = {{1, 1}, {2, 2}, {2, 1}, {1, 2}, {4, 1}, {4, 2}};
    static const uint32_t sizes[][2] = {{1600, 1200}, {17, 3000}, {5000, 9}, {640, 481}};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        uint8_t *rgb = scene(sizes[i][0], sizes[i][1]);
        for (size_t j = 0; j < COUNT_OF(samplings); j++)
            for (int progressive = 0; progressive < 2; progressive++) {
                struct slice bytes = jpeg_of(rgb, sizes[i][0], sizes[i][1], samplings[j], progressive);
                check(&format_jpeg, bytes, progressive ? "progressive" : "baseline");
                free((char *)bytes.ptr);
            }
        free(rgb);
    }
}

static struct slice webp_of(const uint8_t *rgb, uint32_t width, uint32_t height, bool lossless)
{
    WebPConfig config;
    WebPPicture p;
    WebPMemoryWriter w;
    assert_true(WebPConfigInit(&config) && WebPPictureInit(&p));
    WebPMemoryWriterInit(&w);
    config.lossless = lossless;
    config.method = 3;
    p.use_argb = lossless;
    p.width = (int)width;
    p.height = (int)height;
    p.writer = WebPMemoryWrite;
    p.custom_ptr = &w;
    assert_true(WebPPictureImportRGB(&p, rgb, (int)width * 3));
    assert_true(WebPEncode(&config, &p));
    WebPPictureFree(&p);
    return (struct slice){(char *)w.mem, w.size};
}

TEST(large_webps)
{
    static const uint32_t sizes[][2] = {{800, 600}, {33, 3000}, {5000, 9}, {321, 243}};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        uint8_t *rgb = scene(sizes[i][0], sizes[i][1]);
        for (int lossless = 0; lossless < 2; lossless++) {
            struct slice bytes = webp_of(rgb, sizes[i][0], sizes[i][1], lossless);
            check(&format_webp, bytes, lossless ? "lossless" : "lossy");
            free((char *)bytes.ptr);
        }
        free(rgb);
    }
}

TEST_MAIN()
