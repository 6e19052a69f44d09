/* Libraries never take more from the heap while they decode than was charged for it. The heap is this
 * program's own malloc, which counts. */
#include "base/arena.h"
#include "base/check.h"
#include "base/err.h"
#include "encode.h"
#include "test_images.h"
#include "vision/format.h"
#include "vision/image.h"
#include "vision/raster.h"

#include <errno.h>
#include <malloc.h>

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *p, size_t bytes);
void __libc_free(void *p);

static struct {
    bool on;
    long live, peak;         /* bytes of the heap since it is on */
    long charged, uncovered; /* the current charge; the maximum of live bytes above it */
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
    struct image *p = NULL;
    assert_true(f->is(bytes));
    if (f->measure(bytes, &work.size, &e) < 0)
        fail_msg("%s: %s", name, e.text);
    assert_int_equal(image_create(64, 64, 1, NULL, &p), 0);
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
    image_unref(p);
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

TEST(small_images_of_every_kind)
{
    FILE *table = test_image_table("expected.txt");
    char line[512], name[64];
    while (fgets(line, sizeof(line), table)) {
        assert_int_equal(sscanf(line, "%63s", name), 1);
        struct slice bytes = test_image(name);
        check(format_of(bytes), bytes, name);
        free((char *)bytes.ptr);
    }
    fclose(table);
}

TEST(large_jpegs)
{
    static const int samplings[][2] = {{1, 1}, {2, 2}, {2, 1}, {1, 2}, {4, 1}, {4, 2}};
    static const uint32_t sizes[][2] = {{1600, 1200}, {17, 3000}, {5000, 9}, {640, 481}};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        struct encode_pixels p = encode_scene(sizes[i][0], sizes[i][1]);
        for (size_t j = 0; j < 2 * COUNT_OF(samplings); j++) {
            struct encode_jpeg_opts o = {{samplings[j / 2][0], samplings[j / 2][1]}, j % 2};
            struct slice bytes = encode_jpeg(&p, &o);
            check(&format_jpeg, bytes, o.progressive ? "progressive" : "baseline");
            free((char *)bytes.ptr);
        }
        free(p.rgb);
    }
}

TEST(large_webps)
{
    static const uint32_t sizes[][2] = {{800, 600}, {33, 3000}, {5000, 9}, {321, 243}};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        struct encode_pixels p = encode_scene(sizes[i][0], sizes[i][1]);
        for (int lossless = 0; lossless < 2; lossless++) {
            struct slice bytes = encode_webp(&p, lossless);
            check(&format_webp, bytes, lossless ? "lossless" : "lossy");
            free((char *)bytes.ptr);
        }
        free(p.rgb);
    }
}

TEST_MAIN()
