/* wire_embeddings.c - OpenAI's embeddings: a vector for each input, or for a conversation as vLLM has it. */
#include "api/exchange.h"
#include "api/reply.h"
#include "api/request/field.h"
#include "api/wire/wire_openai.h"
#include "api/wire/wire_results.h"

#include "base/check.h"
#include "base/json/json_out.h"
#include "gen/choice.h"
#include "gen/reject.h"

/* ---- fields ---- */

static bool read_input(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    (void)f, (void)why;
    r->gen.prompt = v; /* its form is checked when all fields are known */
    return true;
}

static bool read_format(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    const char *s = json_is_string(v) ? json_string_value(v) : "";
    r->base64 = strcmp(s, "base64") == 0;
    return r->base64 || strcmp(s, "float") == 0 ||
           reject_value(why, f->name, "encoding_format must be \"float\" or \"base64\".");
}

static bool check(struct request *r, struct reject *why)
{
    if (r->gen.prompt && r->gen.messages)
        return reject_value(why, "input", "Send either messages or input, not both.");
    if (r->gen.messages)
        return true;
    if (!r->gen.prompt)
        return reject_value(why, "input", "input is missing.");
    return request_check_prompts(r, "input", why);
}

static const struct field fields[] = {
    {"input", read_input, .prompt = true},
    {"encoding_format", read_format},
    {"dimensions", field_integer, FIELD_AT(gen.dimensions), 1, 65536},
    {"truncation_side", field_truncation_side},
    FIELD_ADD_SPECIAL_TOKENS,
};

static const struct field_group own_fields = {fields, COUNT_OF(fields)};
static const struct field_group *const groups[] = {&fields_results, &own_fields, &fields_openai_conversation,
                                                   NULL};

/* ---- the reply ---- */

/* Little-endian, as every machine that this runs on. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "base64 has the bytes of little-endian floats");

static void write_base64(const float *v, uint32_t count, struct json_out *j)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *bytes = (const unsigned char *)v;
    size_t len = count * sizeof(*v);
    struct buf *ret = json_begin_text(j, "embedding");
    for (size_t i = 0; i < len; i += 3) {
        uint32_t left = (uint32_t)MIN_OF(len - i, (size_t)3);
        uint32_t word = (uint32_t)bytes[i] << 16 | (left > 1 ? (uint32_t)bytes[i + 1] << 8 : 0) |
                        (left > 2 ? bytes[i + 2] : 0);
        char four[4] = {digits[word >> 18], digits[word >> 12 & 63], left > 1 ? digits[word >> 6 & 63] : '=',
                        left > 2 ? digits[word & 63] : '='};
        buf_put(ret, four, sizeof(four));
    }
    json_end_text(j);
}

static void write_floats(const float *v, uint32_t count, struct json_out *j)
{
    json_open_array(j, "embedding");
    for (uint32_t i = 0; i < count; i++)
        json_put_general(j, NULL, 9, (double)v[i]);
    json_close(j);
}

static void result(struct reply *r)
{
    struct json_out j = json_out_object(&r->items);
    uint32_t count;
    const float *v = choice_vector(r->choice, &count);
    json_put_string(&j, "object", "embedding");
    json_put_u64(&j, "index", r->choice->index);
    if (r->exchange->request.base64)
        write_base64(v, count, &j);
    else
        write_floats(v, count, &j);
    json_end(&j);
}

const struct wire wire_embeddings = {
    .route = "/v1/embeddings",
    .frame = &openai_frame,
    .form = {.groups = groups,
             .api = OPENAI,
             .output = GEN_VECTOR,
             .check = check,
             .convert = request_convert_messages},
    .id_prefix = "embd",
    .object = "list",
    .part = results_part,
    .result = result,
    .whole = results_write_list,
};
