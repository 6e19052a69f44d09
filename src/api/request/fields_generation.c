/* fields_generation.c - the fields of every dialect: sampling, limits, delivery. */
#include "api/request/field.h"
#include "api/request/request.h"

#include "base/check.h"
#include "gen/gen_request.h"
#include "gen/reject.h"
#include "sample/sampler_params.h"

#include <math.h>

/* ---- sampling ---- */

static bool read_top_k(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    int64_t x;
    if (!field_integer_of(v, &x) || x < -1)
        return reject_value(why, f->name, "top_k must be an integer from 1; 0 or -1 switch it off.");
    r->gen.sampling.top_k = x < 0 ? 0 : MIN_OF(x, REQUEST_TOKENS_MAX);
    return true;
}

static bool read_seed(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    if (!field_integer_of(v, &r->gen.sampling.seed))
        return reject_value(why, f->name, "seed must be an integer of 64 bits.");
    r->gen.sampling.has_seed = true;
    return true;
}

static bool read_logit_bias(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    if (!json_is_object(v))
        return reject_value(why, f->name, "logit_bias must be an object of token id to bias.");
    if (json_object_size(v) > SAMPLER_BIAS_MAX)
        return reject_value(why, f->name, "logit_bias has %zu entries; the limit is %d.", json_object_size(v),
                            SAMPLER_BIAS_MAX);
    const char *key;
    json_t *bias;
    json_object_foreach(v, key, bias) {
        uint64_t id;
        if (!slice_u64(slice_of(key), UINT32_MAX, &id))
            return reject_value(why, f->name, "logit_bias has the key \"%.40s\", which is not a token id.",
                                key);
        double x = json_is_number(bias) ? json_number_value(bias) : NAN;
        if (!(x >= -100 && x <= 100))
            return reject_value(why, f->name, "logit_bias of token %s must be a number from -100 to 100.",
                                key);
    }
    r->gen.logit_bias = json_object_size(v) ? v : NULL;
    return true;
}

/* ---- limits and stops ---- */

bool field_max_tokens(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    int64_t x;
    bool integer = field_integer_of(v, &x);
    if (integer && x == 0 && r->form->may_have_no_output) {
        r->gen.prompt_only = true;
        return true;
    }
    if (!integer || x < 1)
        return reject_value(why, f->name, "%s must be an integer of at least 1.", f->name);
    x = MIN_OF(x, REQUEST_TOKENS_MAX);
    if (r->gen.sampling.max_tokens >= 0 && r->gen.sampling.max_tokens != x)
        return reject_value(
            why, f->name,
            "max_tokens and max_completion_tokens are names of the same limit; their values differ.");
    r->gen.sampling.max_tokens = x;
    return true;
}

static bool read_stop_string(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    size_t len = json_string_length(v);
    if (!json_is_string(v))
        return reject_value(why, f->name, "%s must be a string or a list of strings.", f->name);
    if (len == 0 || len > REQUEST_STOP_BYTES_MAX)
        return reject_value(why, f->name, "A stop string has %zu bytes; it must have 1 to %d.", len,
                            REQUEST_STOP_BYTES_MAX);
    if (r->gen.stop_count == GEN_STOPS_MAX)
        return reject_value(why, f->name, "There are more than %d stop strings.", GEN_STOPS_MAX);
    r->gen.stops[r->gen.stop_count++] = (struct slice){json_string_value(v), len};
    return true;
}

bool field_stop(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    if (!json_is_array(v))
        return read_stop_string(r, f, v, why);
    size_t i;
    json_t *each;
    json_array_foreach(v, i, each)
        if (!read_stop_string(r, f, each, why))
            return false;
    return true;
}

static bool read_stop_ids(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    if (!json_is_array(v))
        return reject_value(why, f->name, "%s must be a list of token ids.", f->name);
    size_t i;
    json_t *each;
    json_array_foreach(v, i, each) {
        int64_t id;
        if (!field_integer_of(each, &id) || id < 0 || id > UINT32_MAX)
            return reject_value(why, f->name, "%s[%zu] must be a token id.", f->name, i);
        if (r->gen.stop_id_count == SAMPLER_STOP_MAX)
            return reject_value(why, f->name, "%s has more than %d ids.", f->name, SAMPLER_STOP_MAX);
        r->gen.stop_ids[r->gen.stop_id_count++] = (uint32_t)id;
    }
    return true;
}

/* An integer of `v` from 0 to `max`; absent: 0. */
static bool read_count(json_t *v, const char *name, uint32_t max, uint32_t *ret, struct reject *why)
{
    const json_t *given = json_object_get(v, name);
    int64_t x = 0;
    if (given && !json_is_null(given) && (!field_integer_of(given, &x) || x < 0 || x > max))
        return reject_value(why, "repetition_detection",
                            "repetition_detection.%s must be an integer from 0 to %u.", name, max);
    *ret = (uint32_t)x;
    return true;
}

static void note_unknown_limits(struct request *r, json_t *v)
{
    static const char *const known[] = {"max_pattern_size", "min_pattern_size", "min_count", "min_tokens",
                                        "end"};
    const char *key;
    json_t *each;
    json_object_foreach(v, key, each) {
        char name[80];
        uint32_t i = 0;
        while (i < COUNT_OF(known) && strcmp(key, known[i]) != 0)
            i++;
        if (i < COUNT_OF(known))
            continue;
        snprintf(name, sizeof(name), "repetition_detection.%s", key);
        field_note_ignored(r, name);
    }
}

/* vLLM's object, with `min_tokens` and `end` besides. */
static bool read_repetition(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    struct repetition_params p = {0};
    const json_t *end = json_object_get(v, "end");
    const char *word = json_is_string(end)         ? json_string_value(end)
                       : end && !json_is_null(end) ? ""
                                                   : "reply";
    if (!json_is_object(v))
        return reject_value(why, f->name, "repetition_detection must be an object.");
    if (!read_count(v, "max_pattern_size", REPETITION_PATTERN_MAX, &p.pattern_max, why) ||
        !read_count(v, "min_pattern_size", REPETITION_PATTERN_MAX, &p.pattern_min, why) ||
        !read_count(v, "min_count", REPETITION_COUNT_MAX, &p.count, why) ||
        !read_count(v, "min_tokens", REPETITION_TOKENS_MAX, &p.tokens_min, why))
        return false;
    if (p.pattern_min > p.pattern_max)
        return reject_value(why, f->name,
                            "repetition_detection.min_pattern_size must be at most max_pattern_size.");
    if (p.pattern_max > 0 && p.count < 2)
        return reject_value(why, f->name, "repetition_detection.min_count must be at least 2.");
    if (strcmp(word, "reply") != 0 && strcmp(word, "reasoning") != 0)
        return reject_value(why, f->name, "repetition_detection.end must be \"reply\" or \"reasoning\".");
    p.pattern_min = MAX_OF(p.pattern_min, 1u);
    p.ends_reasoning = p.pattern_max > 0 && strcmp(word, "reasoning") == 0;
    note_unknown_limits(r, v);
    r->gen.repetition = p;
    r->gen.has_repetition = true;
    return true;
}

bool field_messages(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    if (!json_is_array(v) || json_array_size(v) == 0)
        return reject_value(why, f->name, "messages must be a list of at least one message.");
    r->gen.messages = v;
    return true;
}

/* -1: as many as the context leaves for the prompt. */
bool field_truncation(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    int64_t x;
    if (!field_integer_of(v, &x) || x < -1 || x == 0 || x > REQUEST_TOKENS_MAX)
        return reject_value(
            why, f->name,
            "truncate_prompt_tokens must be a number of tokens, at least 1, or -1 for as many "
            "as the context leaves.");
    r->gen.truncate = x;
    return true;
}

bool field_truncation_side(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    const char *s = json_is_string(v) ? json_string_value(v) : "";
    if (strcmp(s, "left") != 0 && strcmp(s, "right") != 0)
        return reject_value(why, f->name,
                            "truncation_side must be \"left\" (drop the first tokens) or \"right\".");
    r->gen.truncates_right = strcmp(s, "right") == 0;
    r->gen.truncates_left = !r->gen.truncates_right;
    return true;
}

/* ---- delivery ---- */

bool field_priority(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    int64_t x;
    if (!field_integer_of(v, &x) || x < -1000 || x > 1000)
        return reject_value(why, f->name, "priority must be an integer from -1000 (first) to 1000.");
    r->gen.priority = (int32_t)x;
    return true;
}

/* ---- the group ---- */

/* ---- delivery ---- */

static bool read_session(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    r->gen.has_session = field_session_id(slice_of(json_string_value(v)), r->gen.session_id);
    return r->gen.has_session ||
           reject_value(why, f->name, "session must be the id of a session, \"sess_...\".");
}

static const struct field fields[] = {
    FIELD_MODEL,
    /* Sampling. */
    {"temperature", field_real, FIELD_SAMPLING(temperature), 0, 2},
    {"top_p", field_real, FIELD_SAMPLING(top_p), 1e-6, 1},
    {"top_k", read_top_k},
    {"min_p", field_real, FIELD_SAMPLING(min_p), 0, 0.999999},
    {"repetition_penalty", field_real, FIELD_SAMPLING(repetition_penalty), 0.01, 100},
    {"presence_penalty", field_real, FIELD_SAMPLING(presence_penalty), -2, 2},
    {"frequency_penalty", field_real, FIELD_SAMPLING(frequency_penalty), -2, 2},
    {"seed", read_seed},
    {"logit_bias", read_logit_bias},
    /* Limits and stops. */
    {"max_tokens", field_max_tokens},
    {"min_tokens", field_integer, FIELD_SAMPLING(min_tokens), 0, (double)REQUEST_TOKENS_MAX},
    {"stop_token_ids", read_stop_ids},
    {"thinking_token_budget", field_integer, FIELD_AT(gen.thinking_budget), 0, (double)REQUEST_TOKENS_MAX},
    {"repetition_detection", read_repetition},
    {"ignore_eos", field_bool, FIELD_AT(gen.ignore_eos)},
    {"include_stop_str_in_output", field_bool, FIELD_AT(gen.include_stop)},
    {"skip_special_tokens", field_bool, FIELD_AT(gen.skip_special_tokens)},
    /* Delivery. */
    {"stream", field_bool, FIELD_AT(stream)},
    {"prompt_logprobs", field_integer, FIELD_SAMPLING(prompt_logprobs), 0, SAMPLER_TOP_MAX},
    {"include_timings", field_bool, FIELD_AT(include_timings)},
    {"include_diagnostics", field_bool, FIELD_AT(include_diagnostics)},
    {"return_token_ids", field_bool, FIELD_AT(return_token_ids)},
    {"priority", field_priority},
    {"speculative", field_bool, FIELD_AT(gen.speculative)},
    {"cache_salt", field_string, FIELD_AT(gen.cache_salt)},
    {"session", read_session},
};

const struct field_group fields_generation = {fields, COUNT_OF(fields)};
