/* pixels.c - pixels of images as the vision encoder reads them, for golden/compare_pixels.py.
 *
 * golden_pixels CONFIG IMAGES < NAMES: CONFIG is a directory with config.json and the preprocessor's file,
 * IMAGES one with images. For each line of NAMES it writes a line with the number of parts, and for each part
 * a line with its width and height, then its bytes. Needs no weights. */
#include "model_path.h"

#include "base/arena.h"
#include "base/check.h"
#include "base/slice.h"
#include "media/media.h"
#include "memory/accounts.h"
#include "model/config/vision_config.h"
#include "vision/image.h"

#include <errno.h>
#include <math.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE_BYTES 512

struct pixels {
    struct model_vision vision;
    struct media *media;
    sem_t done;
};

static void say_done(void *arg)
{
    sem_post(arg);
}

static int read_config(const char *dir, struct model_vision *ret, struct err *e)
{
    const struct vision_limits limits = {.pixels_max = VISION_PIXELS_MAX};
    struct arena *a = NULL;
    struct config text;
    struct vision_config v;
    int r = arena_create(&(struct arena_opts){.bytes_max = 64 << 20}, &a);
    if (r == 0)
        r = config_load_at(a, dir, &text, e);
    if (r == 0 && !text.vision_family)
        r = err_set(e, -ENOTSUP, "%s: images of this model are not computed", dir);
    if (r == 0)
        r = vision_config_load_at(dir, &text, &limits, &v, e);
    if (r == 0)
        *ret = v.shape;
    arena_free(a);
    return r;
}

static struct slice url_of(const void *owner, uint32_t index)
{
    (void)index;
    return slice_of(owner);
}

static void write_result(const struct media_task *t)
{
    const struct media_result r = media_task_result(t, 0);
    printf("%u\n", r.count);
    for (uint32_t i = 0; i < r.count; i++) {
        const struct image *p = r.images[i];
        printf("%u %u\n", p->width, p->height);
        fwrite(p->pixels, 1, image_frame_bytes(p->width, p->height), stdout);
    }
    fflush(stdout);
}

/* False: the image is refused, with its name on standard error. */
static bool write_image(struct pixels *x, const char *url)
{
    const struct media_input input = {
        .kind = MEDIA_IMAGE, .at = "image", .fps = NAN, .url_count = 1, .url = url_of, .owner = url};
    struct media_failure why = {0};
    struct media_task *t = NULL;
    bool good = media_task_create(x->media, &input, 1, &x->vision, &t, &why) && media_submit(t, 0, &why);
    while (good && media_task_state(t) != MEDIA_DONE)
        sem_wait(&x->done);
    const struct media_failure *failed = good ? media_task_failure(t) : &why;
    if (failed)
        fprintf(stderr, "%s: %s\n", url, failed->message);
    else
        write_result(t);
    media_task_leave(t);
    return !failed;
}

static int write_all(struct pixels *x, const char *images)
{
    char line[LINE_BYTES], url[LINE_BYTES + 4096];
    while (fgets(line, sizeof(line), stdin)) {
        line[strcspn(line, "\n")] = 0;
        snprintf(url, sizeof(url), "file://%s/%s", images, line);
        if (!write_image(x, url))
            return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
    struct pixels x = {.media = NULL};
    struct ledger *ledger = NULL;
    struct account *account = NULL;
    struct err e = {{0}};
    if (argc != 3) {
        fprintf(stderr, "golden_pixels CONFIG IMAGES < NAMES\n");
        return EXIT_FAILURE;
    }
    sem_init(&x.done, 0, 0);
    int r = read_config(argv[1], &x.vision, &e);
    if (r == 0)
        r = ledger_create((uint64_t)4 << 30, &ledger);
    if (r == 0)
        r = accounts_open(ledger_root(ledger), ACCOUNT_MEDIA, (uint64_t)4 << 30, &account);
    const struct media_opts opts = {
        .on = true, .account = account, .thread_count = 1, .dir = argv[2], .done = say_done, .arg = &x.done};
    if (r == 0)
        r = media_create(&opts, &x.media, &e);
    if (r < 0)
        fprintf(stderr, "%s\n", e.text[0] ? e.text : strerror(-r));
    const int status = r < 0 ? EXIT_FAILURE : write_all(&x, argv[2]);
    media_stop(x.media);
    media_free(x.media);
    account_close(account);
    ledger_free(ledger);
    return status;
}
