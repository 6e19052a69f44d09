/* Request bodies. The first byte selects the route and the memory limit of the request; the rest is the body.
 * Invariants: no crash; every refusal has a status and a sentence that make an envelope of valid JSON; an
 * accepted request is within its bounds; every byte is returned. */
#include "api/reject_http.h"
#include "api/request/request.h"
#include "api/request/utility_form.h"
#include "api/wire/wire.h"
#include "base/check.h"
#include "gen/reject.h"
#include "gen/request_memory.h"
#include "gen/resolve.h"
#include "model/model.h"
#include "registry/registry.h"
#include "sample/sampler_params.h"

#include <jansson.h>
#include <math.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_envelope(const struct reject *why)
{
    struct buf b;
    json_error_t e;
    ASSERT(reject_status(why) >= 400 && reject_status(why) < 600 && why->message[0]);
    buf_init(&b, 8192, NULL);
    reject_write(why, "", &b);
    ASSERT(b.error == 0);
    json_t *v = json_loadb(b.ptr, b.len, JSON_REJECT_DUPLICATES, &e);
    ASSERT(v);
    ASSERT(json_is_string(json_object_get(json_object_get(v, "error"), "message")));
    json_decref(v);
    buf_done(&b);
}

/* How many images and videos a template will find. */
static uint32_t check_content(const json_t *content)
{
    uint32_t media = 0;
    size_t i;
    const json_t *part;
    ASSERT(json_is_string(content) || json_array_size(content) > 0);
    json_array_foreach(content, i, part) {
        const char *type = json_string_value(json_object_get(part, "type"));
        bool is_text = type && strcmp(type, "text") == 0;
        ASSERT(type && (is_text || strcmp(type, "image") == 0 || strcmp(type, "video") == 0));
        ASSERT(is_text == json_is_string(json_object_get(part, "text")));
        ASSERT(json_object_size(part) == (is_text ? 2 : 1));
        media += !is_text;
    }
    return media;
}

static void check_messages(const struct request *r)
{
    uint32_t media = 0;
    size_t i;
    const json_t *m;
    json_array_foreach(r->gen.messages, i, m) {
        ASSERT(json_is_string(json_object_get(m, "role")));
        media += check_content(json_object_get(m, "content"));
    }
    ASSERT(media == gen_media_count(&r->gen));
}

static void check_media(struct request *r)
{
    for (uint32_t i = 0; i < gen_media_count(&r->gen); i++) {
        struct media_input m = gen_media_input(&r->gen, i);
        ASSERT(m.at && m.at[0] && (isnan(m.fps) || m.fps > 0));
        ASSERT(m.listed ? m.kind == MEDIA_VIDEO && m.url_count > 0 : m.url_count == 1);
        for (uint32_t k = 0; k < m.url_count; k++)
            ASSERT(m.url(m.owner, k).len > 0);
    }
    gen_media_drop(&r->gen);
    for (uint32_t i = 0; i < gen_media_count(&r->gen); i++)
        ASSERT(!gen_media_input(&r->gen, i).owner);
}

static void check_accepted(const struct request *r)
{
    const struct gen_sampling *s = &r->gen.sampling;
    ASSERT(isnan(s->temperature) || (s->temperature >= 0 && s->temperature <= 2));
    ASSERT(isnan(s->top_p) || (s->top_p > 0 && s->top_p <= 1));
    ASSERT(r->gen.n >= 1 && (uint64_t)r->gen.n * r->gen.prompt_count <= 8);
    ASSERT(r->gen.stop_count <= GEN_STOPS_MAX && r->gen.stop_id_count <= SAMPLER_STOP_MAX);
    ASSERT(s->top_logprobs >= 0 && s->top_logprobs <= SAMPLER_TOP_MAX);
    for (uint32_t i = 0; i < r->gen.stop_count; i++)
        ASSERT(r->gen.stops[i].len >= 1 && r->gen.stops[i].len <= REQUEST_STOP_BYTES_MAX);
    if (r->gen.messages)
        check_messages(r);
}

static void check_resolved(const struct request *r)
{
    static const struct model_shape shape = {.vocab = 1000};
    const struct served_model model = {.id = "m", .shape = &shape, .max_model_len = 100};
    struct logit_bias bias[SAMPLER_BIAS_MAX];
    struct sampler_params p;
    struct reject why = {0};
    uint32_t max_tokens = 0;
    if (!resolve_sampling(&r->gen, &model, bias, &p, &why)) {
        check_envelope(&why);
        return;
    }
    ASSERT(sampler_params_check(&p, shape.vocab, NULL) == 0);
    if (resolve_max_tokens(&r->gen, &model, 0, 10, &max_tokens, &why))
        ASSERT(max_tokens >= 1 && max_tokens <= 90);
    else
        check_envelope(&why);
}

/* The dialects, then the other kinds. */
static const struct request_form *form_of(uint8_t byte)
{
    size_t wires = 0;
    while (wire_at(wires))
        wires++;
    size_t i = byte % (wires + REQUEST_KIND_COUNT - 1);
    return i < wires ? &wire_at(i)->form : utility_form((enum request_kind)(i - wires + 1));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct request_limits limits = {
        .json_depth_max = 32, .choices_max = 8, .elsewhere = wire_has_elsewhere};
    struct request_memory memory;
    struct request request;
    struct reject why = {0};
    if (size == 0)
        return 0;
    const struct request_form *form = form_of(data[0]);
    size_t bytes_max = data[0] & 0x80 ? (size_t)(data[0] & 0x7f) << 6 : (size_t)64 << 20;
    request_memory_init(&memory, NULL, bytes_max);
    bool ok = request_parse(form, (struct slice){(const char *)data + 1, size - 1}, &limits, &memory,
                            &request, &why);
    ASSERT(ok == (why.kind == REJECT_NONE));
    if (!ok)
        check_envelope(&why);
    else
        check_accepted(&request);
    if (ok && form->output == GEN_TOKENS)
        check_resolved(&request);
    if (ok)
        check_media(&request);
    if (ok)
        request_drop_prompt(&request);
    request_done(&request);
    request_memory_done(&memory);
    return 0;
}
