/* media_request.c - between a request and the media service.
 *
 * A request waits for its images as it waits for its model: as a struct on the network thread's list, so
 * whatever ends a request ends that wait. The descriptor that signals changes of models also signals that a
 * task is done. */
#include "gen/media_request.h"

#include "gen/gen_request.h"
#include "gen/media_prompt.h"
#include "gen/resolve.h"

#include "base/charge.h"
#include "base/check.h"
#include "base/clock.h"
#include "media/media.h"
#include "model/model.h"
#include "registry/registry.h"

#include <errno.h>

/* The account `media` refused: its limit is too small for this request, or other requests fill it. */
static bool refuse_memory(struct gen *g, size_t wanted)
{
    struct account *media = media_account(g->media);
    uint64_t limit = account_numbers(media).limit;
    if (wanted >= limit)
        return reject_set(&g->reject, REJECT_MEDIA_MEMORY, gen_messages_name(g->request),
                          "An image or video of this request needs %zu bytes of memory to decode; the limit "
                          "for all images and videos is %llu (--media-memory). Send a smaller one.",
                          wanted, (ull)limit);
    return g->host->refuse_memory(g, media, wanted);
}

/* ---- submission ---- */

static bool refuse(struct gen *g, const struct media_failure *why)
{
    static const enum reject_kind kinds[] = {[MEDIA_FAULT_INVALID] = REJECT_INVALID_MEDIA,
                                             [MEDIA_FAULT_TOO_LARGE] = REJECT_MEDIA_TOO_LARGE,
                                             [MEDIA_FAULT_NOT_ALLOWED] = REJECT_MEDIA_NOT_ALLOWED,
                                             [MEDIA_FAULT_FETCH] = REJECT_MEDIA_FETCH_FAILED,
                                             [MEDIA_FAULT_UNSUPPORTED] = REJECT_UNSUPPORTED_VALUE,
                                             [MEDIA_FAULT_BUSY] = REJECT_BUSY};
    if (why->fault == MEDIA_FAULT_MEMORY)
        return refuse_memory(g, why->wanted);
    ASSERT((size_t)why->fault < COUNT_OF(kinds));
    g->reject.retry_after_s = why->retry_after_s;
    return reject_set(&g->reject, kinds[why->fault], why->at, "%s", why->message);
}

static bool refuse_blind(struct gen *g)
{
    ASSERT(gen_media_count(g->request) > 0);
    struct media_input first = gen_media_input(g->request, 0);
    const char *what = first.kind == MEDIA_VIDEO ? "video" : "image";
    if (g->model->shape->text_alone)
        return reject_unsupported(
            &g->reject, first.at,
            "%s: of %s the text alone is computed, so the model \"%.100s\" takes no %s.", first.at,
            g->model->shape->family, g->model->id, what);
    if (g->model->shape->has_vision && !g->model->shape->vision.present)
        return reject_unsupported(&g->reject, first.at,
                                  "%s: the model \"%.100s\" was loaded without its vision encoder "
                                  "(--max-image-pixels 0) and takes no %s.",
                                  first.at, g->model->id, what);
    return reject_unsupported(&g->reject, first.at,
                              "%s: the model \"%.100s\" takes text only, no %s. GET /v1/models lists what "
                              "each model takes (input_modalities).",
                              first.at, g->model->id, what);
}

static bool make_task(struct gen *g)
{
    struct media *m = g->media;
    uint32_t count = gen_media_count(g->request), most = media_options(m)->parts_max;
    struct media_failure why;
    ASSERT(count > 0);
    if (count > most)
        return reject_set(&g->reject, REJECT_TOO_MANY_MEDIA, gen_messages_name(g->request),
                          "The messages have %u images and videos; the limit is %u (--max-images).", count,
                          most);
    struct media_input *inputs = request_memory_alloc(&g->memory, count * sizeof(*inputs));
    for (uint32_t i = 0; inputs && i < count; i++)
        inputs[i] = gen_media_input(g->request, i);
    bool ok = inputs && media_task_create(m, inputs, count, &g->model->shape->vision, &g->task, &why);
    request_memory_free(&g->memory, inputs, count * sizeof(*inputs));
    if (!inputs)
        return gen_refuse_memory(g);
    gen_media_drop(g->request);
    return (ok && media_submit(g->task, g->tenant, &why)) || refuse(g, &why);
}

enum prepare media_request_begin(struct gen *g)
{
    ASSERT(!g->task);
    if (gen_media_count(g->request) == 0)
        return PREPARE_DONE;
    if (!g->model->shape->vision.present || !g->media) {
        refuse_blind(g);
        return PREPARE_REFUSED;
    }
    if (g->request->output == GEN_TEXT)
        return PREPARE_DONE;
    return make_task(g) ? PREPARE_WAITS : PREPARE_REFUSED;
}

/* ---- waiting ---- */

static bool refuse_slow(struct gen *g)
{
    g->reject.retry_after_s = media_retry_after_s(g->media);
    return reject_set(&g->reject, REJECT_QUEUE_TIMEOUT, NULL,
                      "The request's images and videos waited %u s to be decoded, the limit of "
                      "--media-timeout. Try again later.",
                      media_options(g->media)->timeout_s);
}

int media_request_poll(struct gen *g, uint64_t now_ns)
{
    ASSERT(g->task);
    enum media_state state = media_task_state(g->task);
    uint64_t patience_ns = media_options(g->media)->timeout_s * NS_PER_S;
    uint64_t since_ns = media_task_waits_since_ns(g->task);
    if (since_ns > 0 && now_ns > since_ns + patience_ns) {
        refuse_slow(g);
        return -ECANCELED;
    }
    if (state != MEDIA_DONE)
        return -EAGAIN;
    const struct media_failure *why = media_task_failure(g->task);
    if (why)
        refuse(g, why);
    return why ? -ECANCELED : 0;
}

/* ---- the prompt ---- */

static struct media_marks marks_of(const struct gen *g)
{
    return media_marks_of(&g->model->shape->vision, g->model->tokenizer);
}

static bool check_texts(struct gen *g, const struct media_marks *m)
{
    const json_t *const texts[] = {g->request->messages, g->request->tools, g->request->template_kwargs};
    for (size_t i = 0; i < COUNT_OF(texts); i++)
        if (texts[i] && media_prompt_forged(m, texts[i]))
            return reject_value(
                &g->reject, gen_messages_name(g->request),
                "A text of this request has \"%.*s\" in it, the placeholder of images in this "
                "model's prompts. Remove it from requests with images.",
                SLICE_ARGS(m->image));
    return true;
}

/* The results of all parts in order, in the request's memory. False: that was refused. */
static bool take_results(struct gen *g, struct media_results *ret)
{
    ASSERT(g->task);
    uint32_t count = media_task_parts(g->task);
    struct media_result *parts = request_memory_alloc(&g->memory, count * sizeof(*parts));
    for (uint32_t i = 0; parts && i < count; i++)
        parts[i] = media_task_result(g->task, i);
    *ret = (struct media_results){parts, count, gen_messages_name(g->request)};
    return parts || gen_refuse_memory(g);
}

static void give_results(struct gen *g, struct media_results *p)
{
    request_memory_free(&g->memory, (void *)p->parts, p->count * sizeof(*p->parts));
}

bool media_request_text(struct gen *g, struct buf *text, struct chat_cuts *cuts)
{
    struct charge charge = request_memory_charge(&g->memory);
    struct media_results results;
    struct buf written;
    if (!g->task)
        return true;
    if (!g->model->tokenizer)
        return reject_unsupported(&g->reject, gen_messages_name(g->request),
                                  "The model \"%.100s\" has no tokenizer.", g->model->id);
    struct media_marks marks = marks_of(g);
    if (!check_texts(g, &marks))
        return false;
    if (!take_results(g, &results))
        return false;
    buf_init(&written, SIZE_MAX / 4, &charge);
    bool ok = media_prompt_text(&marks, &results, buf_slice(text), cuts, &written, &g->reject);
    if (ok && written.error)
        ok = gen_refuse_memory(g);
    give_results(g, &results);
    buf_done(ok ? text : &written);
    if (ok)
        *text = written;
    return ok;
}

static bool expand(struct gen *g, const struct media_marks *m, const struct media_results *results,
                   uint32_t ids_max, struct prompt_ids *p)
{
    uint64_t total;
    uint32_t images;
    if (!media_prompt_count(m, results, p->ids, p->count, &total, &images, &g->reject))
        return false;
    if (total > ids_max) {
        const struct reject_context context = resolve_limit(g->request, g->model);
        return reject_too_long(&g->reject, gen_messages_name(g->request), &context, ids_max);
    }
    ASSERT(!p->images);
    uint32_t *ids = request_memory_alloc(&g->memory, total * sizeof(*ids));
    p->images = request_memory_alloc(&g->memory, images * sizeof(*p->images));
    p->image_count = p->images ? images : 0;
    if (!ids || !p->images) {
        request_memory_free(&g->memory, ids, total * sizeof(*ids));
        return gen_refuse_memory(g);
    }
    media_prompt_expand(m, results, p->ids, p->count, ids, p->images, p->cuts, p->cut_count);
    request_memory_free(&g->memory, p->ids, p->count * sizeof(*ids));
    p->ids = ids;
    p->count = (uint32_t)total;
    return true;
}

bool media_request_ids(struct gen *g, uint32_t ids_max, struct prompt_ids *p)
{
    struct media_results results;
    if (!g->task)
        return true;
    struct media_marks marks = marks_of(g);
    if (!take_results(g, &results))
        return false;
    bool ok = expand(g, &marks, &results, ids_max, p);
    give_results(g, &results);
    return ok;
}

void media_request_drop(struct gen *g)
{
    for (uint32_t i = 0; i < g->prompt_count; i++) {
        struct prompt_ids *p = &g->prompts[i];
        request_memory_free(&g->memory, p->images, p->image_count * sizeof(*p->images));
        p->images = NULL;
        p->image_count = 0;
    }
}

void media_request_done(struct gen *g)
{
    media_request_drop(g);
    media_task_leave(g->task);
    g->task = NULL;
}
