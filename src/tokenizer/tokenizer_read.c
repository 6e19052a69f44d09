/* tokenizer_read.c - what all readers of parts of tokenizer.json need. */
#include "tokenizer/tokenizer_read.h"

#include "tokenizer/tokenizer.h"

#include "base/check.h"
#include "base/err.h"

#include <errno.h>

int tokenizer_no_memory(struct err *e)
{
    return err_set(e, -ENOMEM, "no memory for the tokenizer's tables");
}

int tokenizer_id_check(const json_t *value, struct slice token, uint32_t *ret, struct err *e)
{
    json_int_t id = json_is_integer(value) ? json_integer_value(value) : -1;
    if (id < 0 || id >= TOKENIZER_IDS_MAX)
        return err_set(e, -EINVAL, "tokenizer.json: the id of \"%.*s\" is not a number from 0 to %u",
                       SLICE_ARGS(slice_sub(token, 0, 80)), TOKENIZER_IDS_MAX - 1);
    *ret = (uint32_t)id;
    return 0;
}

size_t tokenizer_stage_count(const json_t *stage, const char *key)
{
    if (!json_is(json_object_get(stage, "type"), "Sequence"))
        return stage && !json_is_null(stage) ? 1 : 0;
    return json_array_size(json_object_get(stage, key));
}

const json_t *tokenizer_stage_member(const json_t *stage, const char *key, size_t index)
{
    ASSERT(index < tokenizer_stage_count(stage, key));
    if (!json_is(json_object_get(stage, "type"), "Sequence"))
        return stage;
    return json_array_get(json_object_get(stage, key), index);
}

struct slice tokenizer_stage_type(const json_t *stage)
{
    struct slice type = json_slice(json_object_get(stage, "type"));
    return type.len ? slice_sub(type, 0, 40) : SLICE("(none)");
}
