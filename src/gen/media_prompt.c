/* media_prompt.c - a walk over placeholders, once over bytes, once over tokens.
 *
 * Times of a video are written before tokenizing, as the reference does it: words before and after them
 * may share a token with them. The tokens of images, of which there may be ten thousand, are multiplied
 * after it. */
#include "gen/media_prompt.h"

#include "gen/reject.h"

#include "base/buf.h"
#include "base/check.h"
#include "engine/job_spec.h"
#include "media/media.h"
#include "model/model.h"
#include "template/chat_cuts.h"
#include "tokenizer/tokenizer.h"
#include "vision/image.h"

#include <stdio.h>

/* ---- marks ---- */

struct media_marks media_marks_of(const struct model_vision *v, const struct tokenizer *t)
{
    struct media_marks m = {
        .image = tokenizer_token_text(t, v->image_token), .image_id = v->image_token, .vision = v};
    if (v->video_frames_max) {
        m.video = tokenizer_token_text(t, v->video_token);
        m.video_id = v->video_token;
        m.start = tokenizer_token_text(t, v->start_token);
        m.end = tokenizer_token_text(t, v->end_token);
    }
    if (v->marks && v->marks->mark) {
        m.token = m.image;
        m.image = slice_of(v->marks->mark);
    }
    if (v->marks && v->marks->row_end) {
        bool found = tokenizer_find(t, slice_of(v->marks->row_end), &m.row_end_id) &&
                     tokenizer_find(t, slice_of(v->marks->end), &m.last_id);
        ASSERT(found); /* the load has found them */
    }
    return m;
}

static bool holds(const struct media_marks *m, struct slice s)
{
    return (m->image.len && slice_find(s, m->image, 0) != SIZE_MAX) ||
           (m->token.len && slice_find(s, m->token, 0) != SIZE_MAX) ||
           (m->video.len && slice_find(s, m->video, 0) != SIZE_MAX);
}

const char *media_prompt_forged(const struct media_marks *m, const json_t *v)
{
    const char *found = NULL, *key;
    size_t i;
    json_t *each;
    if (json_is_string(v))
        return holds(m, (struct slice){json_string_value(v), json_string_length(v)}) ? json_string_value(v)
                                                                                     : NULL;
    json_array_foreach((json_t *)v, i, each)
        if ((found = media_prompt_forged(m, each)))
            return found;
    json_object_foreach((json_t *)v, key, each) {
        if (holds(m, slice_of(key)))
            return key;
        if ((found = media_prompt_forged(m, each)))
            return found;
    }
    return NULL;
}

/* ---- text ---- */

static bool refuse_count(const struct media_results *results, uint32_t found, struct reject *why)
{
    return reject_set(
        why, REJECT_MEDIA_MISMATCH, results->field,
        "The messages have %u images and videos, and the model's chat template placed %u of them: it drops "
        "those in roles or turns where it expects none. Put them into user messages.",
        results->count, found);
}

/* The next placeholder at or after `from`; of length 0 at the end. */
static struct slice next_mark(const struct media_marks *m, struct slice text, size_t from, size_t *at)
{
    size_t image = m->image.len ? slice_find(text, m->image, from) : SIZE_MAX;
    size_t video = m->video.len ? slice_find(text, m->video, from) : SIZE_MAX;
    *at = MIN_OF(image, video);
    if (*at == SIZE_MAX)
        return (struct slice){0};
    return image < video ? m->image : m->video;
}

/* The range of the text that is replaced. */
struct edit {
    size_t from, to;
};

/* A video's marks of start and end are written for each pair, so the range includes those around the
 * placeholder. */
static struct edit edit_of(const struct media_marks *m, struct slice text, size_t at, bool video)
{
    struct edit e = {at, at + (video ? m->video.len : m->image.len)};
    bool framed = video && at >= m->start.len &&
                  slice_starts(slice_sub(text, at - m->start.len, text.len), m->start) &&
                  slice_starts(slice_sub(text, e.to, text.len), m->end);
    if (framed)
        e = (struct edit){at - m->start.len, e.to + m->end.len};
    ASSERT(e.from < e.to && e.to <= text.len);
    return e;
}

static void write_pairs(const struct media_marks *m, const struct media_result *r, struct buf *ret)
{
    const bool images = m->vision->video_images;
    for (uint32_t i = 0; i < r->count; i++) {
        if (!images)
            buf_printf(ret, "<%.1f seconds>", r->seconds[i]);
        buf_put_slice(ret, m->start);
        buf_put_slice(ret, images ? m->image : m->video);
        buf_put_slice(ret, m->end);
        if (images)
            buf_printf(ret, "%u", (uint32_t)r->seconds[i]);
    }
}

static void write_text(const char *text, struct buf *ret)
{
    if (text)
        buf_put_slice(ret, slice_of(text));
}

/* One placeholder for each tile, and one for the whole image. */
static void write_image(const struct media_marks *m, const struct media_result *r, struct buf *ret)
{
    static const struct model_image_marks none;
    const struct model_image_marks *marks = m->vision->marks ? m->vision->marks : &none;
    const struct slice token = m->token.len ? m->token : m->image;
    write_text(marks->before, ret);
    for (uint32_t i = 0; i + 1 < r->count; i++) {
        ASSERT(r->columns > 0);
        if (marks->tile[0])
            buf_printf(ret, "%s%u%s%u%s", marks->tile[0], i / r->columns + 1, marks->tile[1],
                       i % r->columns + 1, marks->tile[2]);
        buf_put_slice(ret, token);
        if ((i + 1) % r->columns == 0)
            write_text(marks->tiles_row_end, ret);
    }
    write_text(r->count > 1 ? marks->whole : marks->alone, ret);
    buf_put_slice(ret, token);
    write_text(marks->after, ret);
}

/* Moves the cuts up to `until` of the text to their offsets in the written text. A cut inside the replaced
 * range moves to its start. */
static uint32_t move_cuts(struct chat_cuts *cuts, uint32_t next, size_t until, size_t written, size_t read)
{
    while (cuts && next < cuts->count && cuts->bytes[next] <= until) {
        size_t at = MIN_OF(cuts->bytes[next], read);
        cuts->bytes[next++] = written - (read - at);
    }
    return next;
}

bool media_prompt_text(const struct media_marks *m, const struct media_results *results, struct slice text,
                       struct chat_cuts *cuts, struct buf *ret, struct reject *why)
{
    size_t read = 0, at;
    uint32_t part = 0, cut = 0;
    for (;; part++) {
        struct slice mark = next_mark(m, text, read, &at);
        if (mark.len == 0)
            break;
        bool video = mark.ptr == m->video.ptr;
        if (part >= results->count || (results->parts[part].kind == MEDIA_VIDEO) != video)
            return refuse_count(results, part, why);
        struct edit e = edit_of(m, text, at, video);
        size_t before = e.from > read ? e.from - read : 0;
        buf_put_slice(ret, slice_sub(text, read, before));
        cut = move_cuts(cuts, cut, e.to - 1, ret->len, read + before);
        if (video)
            write_pairs(m, &results->parts[part], ret);
        else
            write_image(m, &results->parts[part], ret);
        read = e.to;
    }
    buf_put_slice(ret, slice_sub(text, read, text.len));
    move_cuts(cuts, cut, text.len, ret->len, text.len);
    return part == results->count || refuse_count(results, part, why);
}

/* ---- tokens ---- */

static struct model_grid grid_of(const struct media_marks *m, uint32_t first, const struct image *p)
{
    return model_grid_of(m->vision, first, p->width, p->height);
}

/* Returns their number. */
static uint32_t write_tokens(const struct media_marks *m, const struct model_grid *g, uint32_t id,
                             uint32_t *to)
{
    uint32_t n = 0;
    ASSERT(g->rows > 0 && g->columns > 0);
    for (uint32_t row = 0; row < g->rows; row++) {
        for (uint32_t i = 0; i < g->columns; i++)
            to[n++] = id;
        if (g->row_ends)
            to[n++] = row + 1 < g->rows ? m->row_end_id : m->last_id;
    }
    ASSERT(n == model_grid_tokens(g));
    return n;
}

/* All images of all parts, in order. */
struct walk {
    const struct media_results *results;
    uint32_t part, image;
};

static const struct image *look(struct walk *w, bool *video)
{
    while (w->part < w->results->count && w->image == w->results->parts[w->part].count) {
        w->part++;
        w->image = 0;
    }
    if (w->part == w->results->count)
        return NULL;
    ASSERT(w->image < w->results->parts[w->part].count);
    *video = w->results->parts[w->part].kind == MEDIA_VIDEO;
    return w->results->parts[w->part].images[w->image];
}

bool media_prompt_count(const struct media_marks *m, const struct media_results *results, const uint32_t *ids,
                        uint32_t count, uint64_t *ret, uint32_t *images, struct reject *why)
{
    struct walk w = {.results = results};
    uint64_t total = count;
    uint32_t found = 0;
    bool video = false;
    for (uint32_t i = 0; i < count; i++) {
        bool image_id = m->image.len && ids[i] == m->image_id,
             video_id = m->video.len && ids[i] == m->video_id;
        if (!image_id && !video_id)
            continue;
        const struct image *p = look(&w, &video);
        if (!p || (video && !m->vision->video_images) != video_id)
            return refuse_count(results, w.part, why);
        struct model_grid g = grid_of(m, 0, p);
        ASSERT(model_grid_tokens(&g) > 0);
        total += model_grid_tokens(&g) - 1;
        w.image++;
        found++;
    }
    if (look(&w, &video))
        return refuse_count(results, w.part, why);
    *ret = total;
    *images = found;
    return true;
}

void media_prompt_expand(const struct media_marks *m, const struct media_results *results,
                         const uint32_t *ids, uint32_t count, uint32_t *to, struct job_image *images,
                         uint32_t *cuts, uint32_t cut_count)
{
    struct walk w = {.results = results};
    uint32_t written = 0, found = 0, cut = 0;
    bool video;
    for (uint32_t i = 0; i <= count; i++) {
        for (; cut < cut_count && cuts[cut] <= i; cut++)
            cuts[cut] = written;
        if (i == count)
            break;
        bool mark = (m->image.len && ids[i] == m->image_id) || (m->video.len && ids[i] == m->video_id);
        const struct image *p = mark ? look(&w, &video) : NULL;
        if (!p) {
            to[written++] = ids[i];
            continue;
        }
        images[found++] = (struct job_image){w.results->parts[w.part].images[w.image], written};
        w.image++;
        struct model_grid g = grid_of(m, written, p);
        written += write_tokens(m, &g, ids[i], to + written);
    }
    ASSERT(!look(&w, &video));
}
