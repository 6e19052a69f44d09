/* media_request.c - between an exchange and the media service.
 *
 * A request waits for its images as it waits for its model: as a struct on the network thread's list, so
 * whatever ends a request ends that wait. The descriptor that signals changes of models also signals that a
 * task is done. */
#include "api/media_request.h"

#include "api/memory_refusal.h"

#include "base/check.h"
#include "base/clock.h"

#include <errno.h>

static bool no_memory(struct exchange *x)
{
    return memory_refusal_of(x->api, &x->memory, &x->reject);
}

/* The account `media` refused: its limit is too small for this request, or other requests fill it. */
static bool refuse_memory(struct exchange *x, size_t wanted)
{
    struct account *media = media_account(x->api->media);
    uint64_t limit = account_numbers(media).limit;
    if (wanted >= limit)
        return reject_set(&x->reject, REJECT_MEDIA_MEMORY, "messages",
                          "An image or video of this request needs %zu bytes of memory to decode; the limit "
                          "for all images and videos is %llu (--media-memory). Send a smaller one.",
                          wanted, (unsigned long long)limit);
    return memory_refusal(x->api, media, wanted, atomic_load(&x->api->requests_now) - 1, &x->reject);
}

/* ---- submission ---- */

static bool refuse(struct exchange *x, const struct media_failure *why)
{
    static const enum reject_kind kinds[] = {[MEDIA_FAULT_INVALID] = REJECT_INVALID_MEDIA,
                                             [MEDIA_FAULT_TOO_LARGE] = REJECT_MEDIA_TOO_LARGE,
                                             [MEDIA_FAULT_NOT_ALLOWED] = REJECT_MEDIA_NOT_ALLOWED,
                                             [MEDIA_FAULT_FETCH] = REJECT_MEDIA_FETCH_FAILED,
                                             [MEDIA_FAULT_UNSUPPORTED] = REJECT_UNSUPPORTED_VALUE,
                                             [MEDIA_FAULT_BUSY] = REJECT_BUSY};
    if (why->fault == MEDIA_FAULT_MEMORY)
        return refuse_memory(x, why->wanted);
    x->reject.retry_after_s = why->retry_after_s;
    return reject_set(&x->reject, kinds[why->fault], why->at, "%s", why->message);
}

static bool refuse_blind(struct exchange *x)
{
    struct media_input first = request_media(&x->request, 0);
    const char *what = first.kind == MEDIA_VIDEO ? "video" : "image";
    if (x->model->shape->has_vision && !x->model->shape->vision.present)
        return reject_unsupported(
            &x->reject, first.at,
            "%s: the model \"%.100s\" was loaded without its vision encoder and takes no %s.", first.at,
            x->model->id, what);
    return reject_unsupported(&x->reject, first.at,
                              "%s: the model \"%.100s\" takes text only, no %s. GET /v1/models lists what "
                              "each model takes (input_modalities).",
                              first.at, x->model->id, what);
}

static bool make_task(struct exchange *x)
{
    struct media *m = x->api->media;
    uint32_t count = request_media_count(&x->request), most = media_options(m)->parts_max;
    struct media_failure why;
    if (count > most)
        return reject_set(&x->reject, REJECT_TOO_MANY_MEDIA, "messages",
                          "The messages have %u images and videos; the limit is %u (--max-images).", count,
                          most);
    struct media_input *inputs = request_memory_alloc(&x->memory, count * sizeof(*inputs));
    for (uint32_t i = 0; inputs && i < count; i++)
        inputs[i] = request_media(&x->request, i);
    bool ok = inputs && media_task_create(m, inputs, count, &x->model->shape->vision, &x->media, &why);
    request_memory_free(&x->memory, inputs, count * sizeof(*inputs));
    if (!inputs)
        return no_memory(x);
    request_drop_sources(&x->request);
    return (ok && media_submit(x->media, x->tenant, &why)) || refuse(x, &why);
}

bool media_request_ready(struct exchange *x)
{
    if (request_media_count(&x->request) == 0 || x->media)
        return true;
    if (!x->model->shape->vision.present || !x->api->media)
        return refuse_blind(x);
    if (x->kind == REQUEST_TEMPLATE)
        return true;
    x->waits = make_task(x);
    return false;
}

/* ---- waiting ---- */

static bool refuse_slow(struct exchange *x)
{
    x->reject.retry_after_s = media_retry_after_s(x->api->media);
    return reject_set(&x->reject, REJECT_QUEUE_TIMEOUT, NULL,
                      "The request's images and videos waited %u s to be decoded, the limit of "
                      "--media-timeout. Try again later.",
                      media_options(x->api->media)->timeout_s);
}

int media_request_look(struct exchange *x, uint64_t now_ns)
{
    enum media_state state = media_task_state(x->media);
    uint64_t patience_ns = media_options(x->api->media)->timeout_s * NS_PER_S;
    uint64_t since_ns = media_task_waits_since_ns(x->media);
    if (since_ns > 0 && now_ns > since_ns + patience_ns) {
        refuse_slow(x);
        return -ECANCELED;
    }
    if (state != MEDIA_DONE)
        return -EAGAIN;
    const struct media_failure *why = media_task_failure(x->media);
    if (why)
        refuse(x, why);
    return why ? -ECANCELED : 0;
}

/* ---- the prompt ---- */

static struct media_marks marks_of(const struct exchange *x)
{
    return media_marks_of(&x->model->shape->vision, x->model->tokenizer);
}

static bool check_texts(struct exchange *x, const struct media_marks *m)
{
    const json_t *const texts[] = {x->request.gen.messages, x->request.gen.tools,
                                   x->request.gen.template_kwargs};
    for (size_t i = 0; i < COUNT_OF(texts); i++)
        if (texts[i] && media_prompt_forged(m, texts[i]))
            return reject_value(&x->reject, "messages",
                                "A text of this request contains \"%.*s\", the placeholder of images in this "
                                "model's prompts. Remove it from requests with images.",
                                SLICE_ARGS(m->image));
    return true;
}

/* The results of all parts in order, in the request's memory. NULL: the memory was refused. */
static struct media_result *results_of(struct exchange *x, struct media_places *ret)
{
    uint32_t count = media_task_parts(x->media);
    struct media_result *parts = request_memory_alloc(&x->memory, count * sizeof(*parts));
    for (uint32_t i = 0; parts && i < count; i++)
        parts[i] = media_task_result(x->media, i);
    *ret = (struct media_places){parts, count};
    return parts;
}

static void free_results(struct exchange *x, struct media_result *parts)
{
    request_memory_free(&x->memory, parts, media_task_parts(x->media) * sizeof(*parts));
}

bool media_request_text(struct exchange *x, struct buf *text, struct chat_cuts *cuts)
{
    struct charge charge = request_memory_charge(&x->memory);
    struct media_places places;
    struct buf written;
    if (!x->media)
        return true;
    if (!x->model->tokenizer)
        return reject_unsupported(&x->reject, "messages", "The model \"%.100s\" has no tokenizer.",
                                  x->model->id);
    struct media_marks marks = marks_of(x);
    if (!check_texts(x, &marks))
        return false;
    struct media_result *parts = results_of(x, &places);
    if (!parts)
        return no_memory(x);
    buf_init(&written, SIZE_MAX / 4, &charge);
    bool ok = media_prompt_text(&marks, &places, buf_slice(text), cuts, &written, &x->reject);
    if (ok && written.error)
        ok = no_memory(x);
    free_results(x, parts);
    buf_done(ok ? text : &written);
    if (ok)
        *text = written;
    return ok;
}

static bool expand(struct exchange *x, const struct media_marks *m, const struct media_places *places,
                   uint32_t ids_max, struct prompt_ids *p)
{
    uint64_t total;
    uint32_t images;
    if (!media_prompt_count(m, places, p->ids, p->count, &total, &images, &x->reject))
        return false;
    if (total > ids_max)
        return reject_too_long(&x->reject, "messages", x->model->max_model_len, ids_max);
    uint32_t *ids = request_memory_alloc(&x->memory, total * sizeof(*ids));
    p->images = request_memory_alloc(&x->memory, images * sizeof(*p->images));
    p->image_count = p->images ? images : 0;
    if (!ids || !p->images) {
        request_memory_free(&x->memory, ids, total * sizeof(*ids));
        return no_memory(x);
    }
    media_prompt_expand(m, places, p->ids, p->count, ids, p->images, p->cuts, p->cut_count);
    request_memory_free(&x->memory, p->ids, p->count * sizeof(*ids));
    p->ids = ids;
    p->count = (uint32_t)total;
    return true;
}

bool media_request_ids(struct exchange *x, uint32_t ids_max, struct prompt_ids *p)
{
    struct media_places places;
    if (!x->media)
        return true;
    struct media_marks marks = marks_of(x);
    struct media_result *parts = results_of(x, &places);
    if (!parts)
        return no_memory(x);
    bool ok = expand(x, &marks, &places, ids_max, p);
    free_results(x, parts);
    return ok;
}

void media_request_done(struct exchange *x)
{
    for (uint32_t i = 0; i < x->prompt_count; i++) {
        struct prompt_ids *p = &x->prompts[i];
        request_memory_free(&x->memory, p->images, p->image_count * sizeof(*p->images));
        p->images = NULL;
        p->image_count = 0;
    }
    if (x->media)
        x->waits = false;
    media_task_leave(x->media);
    x->media = NULL;
}
