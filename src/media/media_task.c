/* media_task.c - from inputs to a task. Parts that can be refused without decoding are refused
 * here, on the caller's thread.
 *
 * A task has an arena of its own, so all of it is charged to the account `media` and freed as a whole. Bytes
 * of data URLs are decoded from the request's JSON here. In the service's queue they take none of the
 * request's memory, and are smaller than in JSON, where base64 adds a third. */
#include "media/media_task.h"

#include "media/media_address.h"

#include "base/arena.h"
#include "base/check.h"
#include "unicode/utf8.h"
#include "vision/data_url.h"
#include "vision/image.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#define ARENA_BYTES_MAX ((size_t)64 << 20)
#define ARENA_GRAIN     ((size_t)16 << 10)

/* ---- memory: each thread remembers its last refusal ---- */

static _Thread_local size_t refused_bytes;

size_t media_memory_refused(void)
{
    return refused_bytes;
}

static int take(void *owner, size_t bytes)
{
    struct media *m = owner;
    if (account_reserve(m->opts.account, bytes) < 0) {
        refused_bytes = bytes;
        return -ENOMEM;
    }
    account_use(m->opts.account, bytes);
    return 0;
}

static void give(void *owner, size_t bytes)
{
    struct media *m = owner;
    account_unuse(m->opts.account, bytes);
    account_release(m->opts.account, bytes);
}

struct charge media_memory_charge(struct media *m)
{
    return (struct charge){take, give, m};
}

/* ---- refusals ---- */

/* The first refusal stays. */
static bool refuse(struct media_task *t, const struct media_part *p, enum media_fault fault,
                   const char *between, const char *text)
{
    struct media_failure *why = &t->why;
    t->failed = true;
    if (why->fault != MEDIA_FAULT_MEMORY)
        return false;
    why->fault = fault;
    snprintf(why->at, sizeof(why->at), "%s", p->at);
    snprintf(why->message, sizeof(why->message), "%s%s%s", p->at, between, text);
    utf8_clean(why->message);
    return false;
}

bool media_refuse(struct media_task *t, const struct media_part *p, enum media_fault fault,
                  const char *format, ...)
{
    char text[600];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    return refuse(t, p, fault, " ", text);
}

bool media_fail(struct media_task *t, const struct media_part *p, int r, const struct err *e)
{
    t->failed = true;
    if (r == -ENOMEM)
        t->why.wanted = media_memory_refused();
    if (r == -ENOMEM || r == -ECANCELED)
        return false;
    return refuse(t, p, r == -E2BIG ? MEDIA_FAULT_TOO_LARGE : MEDIA_FAULT_INVALID, ": ", e->text);
}

bool media_reserve_images(struct media_task *t, struct media_part *p, uint32_t count)
{
    ASSERT(!p->images);
    p->images = ARENA_ARRAY(t->arena, struct image *, count);
    p->seconds = ARENA_ARRAY(t->arena, double, count);
    if (!p->images || !p->seconds)
        return media_fail(t, p, -ENOMEM, NULL);
    p->room = count;
    return true;
}

/* ---- sources ---- */

static bool take_data(struct media_task *t, const struct media_part *p, struct media_source *s,
                      struct slice url)
{
    size_t bytes_max = t->media->opts.bytes_max;
    struct data_url u;
    struct err e = {0};
    int r = data_url_parse(url, &u, &e);
    if (r == 0 && u.bytes_max > bytes_max && data_url_bytes(&u) > bytes_max)
        return media_refuse(t, p, MEDIA_FAULT_TOO_LARGE,
                            "has %zu bytes; the limit is %zu (--max-media-bytes).", data_url_bytes(&u),
                            bytes_max);
    if (r == 0)
        r = media_bytes_reserve(&s->bytes, u.bytes_max, &t->media->charge);
    if (r == 0)
        r = data_url_decode(&u, s->bytes.ptr, &s->bytes.len, &e);
    t->bytes += s->bytes.len;
    return r == 0 || media_fail(t, p, r, &e);
}

static bool take_url(struct media_task *t, const struct media_part *p, struct media_source *s,
                     struct slice url)
{
    const struct media_opts *o = &t->media->opts;
    bool file = slice_starts_any_case(url, SLICE("file:"));
    const char *fault = file ? NULL : media_url_fault(url);
    if (file && !o->dir)
        return media_refuse(t, p, MEDIA_FAULT_NOT_ALLOWED,
                            "is a file: URL, and the server reads no files. Send a data URL, or start the "
                            "server with --media-dir.");
    if (fault)
        return media_refuse(t, p, MEDIA_FAULT_INVALID,
                            "must be a URL of data, http, https or file; this one %s.", fault);
    if (!file && !o->allow_remote)
        return media_refuse(t, p, MEDIA_FAULT_NOT_ALLOWED,
                            "is a remote URL, and the server fetches no remote media. Send a data URL, or "
                            "start the server with --allow-remote-media.");
    s->origin = file ? MEDIA_FROM_FILE : MEDIA_FROM_NETWORK;
    s->url = arena_strndup(t->arena, url.ptr, url.len);
    t->remote |= !file;
    return s->url || media_fail(t, p, -ENOMEM, NULL);
}

static bool take_source(struct media_task *t, struct media_part *p, struct media_source *s, struct slice url)
{
    if (data_url_is(url))
        return take_data(t, p, s, url);
    if (memchr(url.ptr, 0, url.len))
        return media_refuse(t, p, MEDIA_FAULT_INVALID, "has a zero byte in its URL.");
    return take_url(t, p, s, url);
}

/* ---- parts ---- */

uint32_t media_frames_max(const struct media_task *t)
{
    uint32_t own = t->media->opts.frames_max, model = t->vision.video_frames_max;
    return own && own < model ? own : model;
}

double media_pair_seconds(const struct media_task *t, double first, double second)
{
    return t->vision.video_images ? first : (first + second) / 2;
}

struct smart_bounds media_video_bounds(const struct media_task *t, uint32_t frames)
{
    const struct model_vision *v = &t->vision;
    return (struct smart_bounds){v->patch * v->merge, v->video_pixels_min,
                                 MIN_OF(v->video_pixels_max, v->pixels_max * frames), v->pixels_max};
}

static bool check_part(struct media_task *t, const struct media_part *p)
{
    if (p->kind == MEDIA_VIDEO && !t->vision.video_frames_max)
        return media_refuse(t, p, MEDIA_FAULT_UNSUPPORTED, "is a video, and this model takes images only.");
    if (p->listed && p->source_count > media_frames_max(t))
        return media_refuse(t, p, MEDIA_FAULT_TOO_LARGE, "has %u frames; at most %u are supported.",
                            p->source_count, media_frames_max(t));
    if (p->kind == MEDIA_VIDEO && !p->listed && !t->media->has_ffmpeg)
        return media_refuse(t, p, MEDIA_FAULT_UNSUPPORTED,
                            "is a video, and the server has no ffmpeg to decode it (Debian's package "
                            "ffmpeg). Send its frames as a list of images.");
    return true;
}

static bool take_parts(struct media_task *t, const struct media_input *inputs)
{
    struct media_source *next = t->sources;
    for (uint32_t i = 0; i < t->part_count; i++) {
        struct media_part *p = &t->parts[i];
        const struct media_input *in = &inputs[i];
        p->kind = in->kind;
        p->fps = in->fps;
        p->listed = in->listed;
        p->sources = next;
        p->source_count = in->url_count;
        next += p->source_count;
        snprintf(p->at, sizeof(p->at), "%s", in->at);
        t->video |= p->kind == MEDIA_VIDEO;
        if (!check_part(t, p))
            return false;
        for (uint32_t k = 0; k < p->source_count; k++) {
            p->sources[k].part = i;
            if (!take_source(t, p, &p->sources[k], in->url(in->owner, k)))
                return false;
        }
    }
    return true;
}

static struct media_task *make(struct media *m, const struct media_input *inputs, uint32_t count)
{
    struct arena_opts opts = {.bytes_max = ARENA_BYTES_MAX, .grain = ARENA_GRAIN, .charge = &m->charge};
    struct arena *arena = NULL;
    uint32_t sources = 0;
    for (uint32_t i = 0; i < count; i++)
        sources += inputs[i].url_count;
    if (arena_create(&opts, &arena) < 0)
        return NULL;
    struct media_task *t = ARENA_NEW(arena, struct media_task);
    if (t) {
        *t = (struct media_task){.media = m,
                                 .arena = arena,
                                 .part_count = count,
                                 .source_count = sources,
                                 .parts = ARENA_ARRAY(arena, struct media_part, count),
                                 .sources = ARENA_ARRAY(arena, struct media_source, sources)};
        list_init(&t->link);
        list_init(&t->entry.fair.link);
    }
    if (t && t->parts && t->sources)
        return t;
    arena_free(arena);
    return NULL;
}

void media_task_free(struct media_task *t)
{
    for (uint32_t i = 0; i < t->source_count; i++)
        media_bytes_done(&t->sources[i].bytes);
    for (uint32_t i = 0; i < t->part_count; i++)
        for (uint32_t k = 0; k < t->parts[i].count; k++)
            image_unref(t->parts[i].images[k]);
    arena_free(t->arena);
}

bool media_task_create(struct media *m, const struct media_input *inputs, uint32_t count,
                       const struct model_vision *vision, struct media_task **ret, struct media_failure *why)
{
    ASSERT(count > 0 && count <= m->opts.parts_max);
    struct media_task *t = make(m, inputs, count);
    if (!t) {
        *why = (struct media_failure){.wanted = media_memory_refused()};
        return false;
    }
    t->vision = *vision;
    if (take_parts(t, inputs)) {
        *ret = t;
        return true;
    }
    *why = t->why;
    media_task_free(t);
    return false;
}

/* ---- results ---- */

enum media_state media_task_state(const struct media_task *t)
{
    return (enum media_state)atomic_load(&t->state);
}

uint64_t media_task_waits_since_ns(const struct media_task *t)
{
    return atomic_load(&t->waits_since_ns);
}

const struct media_failure *media_task_failure(const struct media_task *t)
{
    return t->failed ? &t->why : NULL;
}

uint32_t media_task_parts(const struct media_task *t)
{
    return t->part_count;
}

struct media_result media_task_result(const struct media_task *t, uint32_t part)
{
    const struct media_part *p = &t->parts[part];
    return (struct media_result){p->kind, p->images, p->seconds, p->count, p->columns};
}

struct media_progress media_task_progress(const struct media_task *t)
{
    return (struct media_progress){atomic_load(&t->parts_done), t->part_count, atomic_load(&t->bytes_fetched),
                                   atomic_load(&t->frames_decoded), atomic_load(&t->frames)};
}
