/* gen_request.c - reads the lists of a request. */
#include "gen/gen_request.h"

#include "base/check.h"

#include <math.h>

bool gen_constrain(struct gen_request *r, const char *param, enum grammar_kind kind, json_t *value)
{
    ASSERT(param);
    const struct gen_grammar *had = &r->grammar;
    if (had->param)
        return had->kind == kind && (had->value == value || json_equal(had->value, value));
    r->grammar = (struct gen_grammar){.param = param, .kind = kind, .value = json_incref(value)};
    return true;
}

uint32_t gen_bias_count(const struct gen_request *r)
{
    return (uint32_t)(r->allowed_ids ? json_array_size(r->allowed_ids) : json_object_size(r->logit_bias));
}

uint32_t gen_media_count(const struct gen_request *r)
{
    return (uint32_t)json_array_size(r->media);
}

/* The source is a string, or of a video a list of strings: its frames. Never empty. */
static struct slice url_of(const void *owner, uint32_t index)
{
    const json_t *source = owner, *url = json_is_array(source) ? json_array_get(source, index) : source;
    ASSERT(!json_is_array(source) || index < json_array_size(source));
    return (struct slice){json_string_value(url), json_string_length(url)};
}

struct media_input gen_media_input(const struct gen_request *r, uint32_t index)
{
    ASSERT(index < gen_media_count(r));
    const json_t *entry = json_array_get(r->media, index), *source = json_object_get(entry, "source");
    double fps = json_real_value(json_object_get(entry, "fps"));
    return (struct media_input){
        .kind = (enum media_kind)json_integer_value(json_object_get(entry, "kind")),
        .at = json_string_value(json_object_get(entry, "at")),
        .listed = json_is_array(source),
        .fps = fps > 0 ? fps : NAN,
        .url_count = json_is_array(source) ? (uint32_t)json_array_size(source) : 1,
        .url = url_of,
        .owner = source,
    };
}

void gen_media_drop(struct gen_request *r)
{
    size_t i;
    json_t *entry;
    json_array_foreach(r->media, i, entry)
        json_object_del(entry, "source");
}
