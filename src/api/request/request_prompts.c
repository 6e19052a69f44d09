/* request_prompts.c - a field with a text, token ids, or a list of either: prompts of completions, inputs of
 * embeddings. */
#include "api/request/request.h"

#include "base/check.h"
#include "gen/reject.h"

static bool is_id(const json_t *v)
{
    return json_is_integer(v) && json_integer_value(v) >= 0;
}

static bool check_ids(const json_t *ids, const char *name, struct reject *why)
{
    size_t i;
    json_t *each;
    json_array_foreach(ids, i, each)
        if (!is_id(each))
            return reject_value(
                why, name,
                "%s[%zu] is not a token id. It must be a string, a list of token ids, or a list "
                "of either.",
                name, i);
    return true;
}

/* Refused before a tokenizer puts its begin token in front of nothing. */
static bool is_empty(const json_t *prompt)
{
    return (json_is_string(prompt) && json_string_length(prompt) == 0) ||
           (json_is_array(prompt) && json_array_size(prompt) == 0);
}

static bool check_list(const json_t *list, const char *name, struct reject *why)
{
    size_t i;
    json_t *each;
    json_array_foreach(list, i, each) {
        if (is_empty(each))
            return reject_value(why, name, "%s[%zu] is empty; it must be at least one token id or character.",
                                name, i);
        if (json_is_string(each))
            continue;
        if (!json_is_array(each))
            return reject_value(why, name, "%s[%zu] must be a string or a list of token ids.", name, i);
        if (!check_ids(each, name, why))
            return false;
    }
    return true;
}

bool request_check_prompts(struct request *r, const char *name, struct reject *why)
{
    const json_t *prompt = r->gen.prompt;
    r->gen.prompt_name = name;
    if (is_empty(prompt))
        return reject_value(why, name, "%s is empty; it must be at least one token id or character.", name);
    if (json_is_string(prompt))
        return true;
    if (!json_is_array(prompt))
        return reject_value(why, name, "%s must be a string, a list of token ids, or a list of either.",
                            name);
    if (json_is_integer(json_array_get(prompt, 0)))
        return check_ids(prompt, name, why);
    r->gen.prompt_count = (uint32_t)MIN_OF(json_array_size(prompt), (size_t)UINT32_MAX);
    return check_list(prompt, name, why);
}
