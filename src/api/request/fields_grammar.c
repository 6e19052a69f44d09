/* fields_grammar.c - what constrains the output of completions and chats: OpenAI's field, and the names that
 * vLLM, llama-server, SGLang and text-generation-inference have for the same. Messages and Responses take
 * `structured_outputs` beside the fields of their own.
 *
 * A grammar is only noted here. It is compiled when the model is known (gen/grammar_request.h). */
#include "api/request/field.h"
#include "api/request/request.h"

#include "base/check.h"
#include "gen/gen_request.h"
#include "gen/reject.h"

#include <string.h>

bool field_constrain(struct request *r, const char *param, enum grammar_kind kind, json_t *value,
                     struct reject *why)
{
    if (gen_constrain(&r->gen, param, kind, value))
        return true;
    return reject_value(why, param, "%s and %s constrain the output differently; send one of them.",
                        r->gen.grammar.param, param);
}

static bool constrain_schema(struct request *r, const char *param, json_t *schema, struct reject *why)
{
    if (!json_is_object(schema) && !json_is_boolean(schema))
        return reject_value(why, param, "%s must be a JSON Schema: an object.", param);
    return field_constrain(r, param, GRAMMAR_JSON_SCHEMA, schema, why);
}

/* Servers whose schemas come from a command line take the text of one, too. */
static bool schema_or_text(struct request *r, const char *param, json_t *v, struct reject *why)
{
    if (json_is_string(v) && json_string_length(v) > 0)
        return field_constrain(r, param, GRAMMAR_JSON_SCHEMA, v, why);
    return constrain_schema(r, param, v, why);
}

static bool text(struct request *r, const char *param, enum grammar_kind kind, json_t *v, struct reject *why)
{
    if (!json_is_string(v) || json_string_length(v) == 0)
        return reject_value(why, param, "%s must be a string that is not empty.", param);
    return field_constrain(r, param, kind, v, why);
}

static bool regex(struct request *r, const char *param, json_t *v, struct reject *why)
{
    return text(r, param, GRAMMAR_REGEX, v, why);
}

static bool choice(struct request *r, const char *param, json_t *v, struct reject *why)
{
    if (!json_is_array(v))
        return reject_value(why, param, "%s must be a list of strings.", param);
    return field_constrain(r, param, GRAMMAR_CHOICE, v, why);
}

/* GBNF has ::= in every rule, and Lark never has. */
static bool grammar(struct request *r, const char *param, json_t *v, struct reject *why)
{
    struct slice s = {json_is_string(v) ? json_string_value(v) : "", json_string_length(v)};
    bool gbnf = slice_find(s, SLICE("::="), 0) != SIZE_MAX;
    return text(r, param, gbnf ? GRAMMAR_GBNF : GRAMMAR_LARK, v, why);
}

/* ---- response_format ---- */

static bool check_name(const char *param, const json_t *format, struct reject *why)
{
    const json_t *name = json_object_get(format, "name"), *strict = json_object_get(format, "strict");
    if (name && !json_is_null(name) && !json_is_string(name))
        return reject_value(why, param, "%s.name must be a string.", param);
    if (strict && !json_is_null(strict) && !json_is_boolean(strict))
        return reject_value(why, param, "%s.strict must be true or false.", param);
    return true;
}

bool field_named_schema(struct request *r, const char *param, const char *schema_param, const json_t *format,
                        struct reject *why)
{
    json_t *schema = json_object_get(format, "schema");
    if (!json_is_object(format))
        return reject_value(why, param, "%s must be an object with a \"schema\".", param);
    if (!schema || json_is_null(schema))
        return reject_value(why, param, "%s is missing.", schema_param);
    return check_name(param, format, why) && constrain_schema(r, schema_param, schema, why);
}

/* The member is there. */
static json_t *given(const json_t *v, const char *name)
{
    json_t *member = json_object_get(v, name);
    return json_is_null(member) ? NULL : member;
}

/* llama-server has the schema beside the type, and text-generation-inference as the type's `value`. */
static bool json_object_format(struct request *r, const json_t *v, struct reject *why)
{
    if (given(v, "schema"))
        return constrain_schema(r, "response_format.schema", given(v, "schema"), why);
    if (given(v, "value"))
        return constrain_schema(r, "response_format.value", given(v, "value"), why);
    return field_constrain(r, "response_format", GRAMMAR_JSON_OBJECT, NULL, why);
}

static bool json_schema_format(struct request *r, const json_t *v, struct reject *why)
{
    const json_t *named = json_object_get(v, "json_schema");
    if (!named && json_object_get(v, "schema"))
        return field_named_schema(r, "response_format", "response_format.schema", v, why);
    if (!named && given(v, "value"))
        return field_named_schema(r, "response_format.value", "response_format.value.schema",
                                  given(v, "value"), why);
    return field_named_schema(r, "response_format.json_schema", "response_format.json_schema.schema", named,
                              why);
}

/* vLLM's older form has the tags beside the type, the newer one a tree of formats. */
static bool structural_format(struct request *r, json_t *v, struct reject *why)
{
    if (!json_object_get(v, "format") && !json_object_get(v, "structures"))
        return reject_value(
            why, "response_format",
            "response_format of type \"structural_tag\" needs \"format\", or \"structures\" and "
            "\"triggers\".");
    return field_constrain(r, "response_format", GRAMMAR_STRUCTURAL, v, why);
}

static bool read_response_format(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    const char *type = json_string_value(json_object_get(v, "type"));
    if (!type)
        return reject_value(why, f->name, "response_format must be an object with a \"type\".");
    if (strcmp(type, "text") == 0)
        return true;
    if (strcmp(type, "json_object") == 0 || strcmp(type, "json") == 0)
        return json_object_format(r, v, why);
    if (strcmp(type, "regex") == 0)
        return regex(r, "response_format.value", json_object_get(v, "value"), why);
    if (strcmp(type, "json_schema") == 0)
        return json_schema_format(r, v, why);
    if (strcmp(type, "structural_tag") == 0)
        return structural_format(r, v, why);
    return reject_unsupported(why, "response_format.type",
                              "response_format of type \"%.32s\" is not supported; \"text\", "
                              "\"json_object\", \"json_schema\" and \"structural_tag\" are.",
                              type);
}

/* ---- vLLM ---- */

static bool json_object_wanted(struct request *r, const char *param, json_t *v, struct reject *why)
{
    if (!json_is_boolean(v))
        return reject_value(why, param, "%s must be true or false.", param);
    return json_is_false(v) || field_constrain(r, param, GRAMMAR_JSON_OBJECT, NULL, why);
}

/* vLLM takes it as text only. */
static bool structural_tag(struct request *r, const char *param, json_t *v, struct reject *why)
{
    if (!json_is_object(v) && !(json_is_string(v) && json_string_length(v) > 0))
        return reject_value(why, param, "%s must be an object, or a text that has one.", param);
    return field_constrain(r, param, GRAMMAR_STRUCTURAL, v, why);
}

static bool refuse_closing(struct request *r, const char *param, json_t *v, struct reject *why)
{
    (void)r;
    if (json_is_false(v))
        return true;
    return reject_unsupported(
        why, param, "%s is not supported; write \"additionalProperties\": false into the schema.", param);
}

static bool ignore_member(struct request *r, const char *param, json_t *v, struct reject *why)
{
    (void)why;
    if (!json_is_false(v))
        field_note_ignored(r, param);
    return true;
}

typedef bool member_fn(struct request *r, const char *param, json_t *v, struct reject *why);

static const struct member {
    const char *name, *param;
    member_fn *read;
} members[] = {
#define MEMBER(name, read)                                                                                   \
    {                                                                                                        \
        name, "structured_outputs." name, read                                                               \
    }
    MEMBER("json", schema_or_text),
    MEMBER("json_object", json_object_wanted),
    MEMBER("regex", regex),
    MEMBER("choice", choice),
    MEMBER("grammar", grammar),
    MEMBER("structural_tag", structural_tag),
    MEMBER("disable_additional_properties", refuse_closing),
    MEMBER("disable_any_whitespace", ignore_member),
    MEMBER("disable_fallback", ignore_member),
    MEMBER("whitespace_pattern", ignore_member),
#undef MEMBER
};

static const struct member *member_of(const char *name)
{
    for (size_t i = 0; i < COUNT_OF(members); i++)
        if (strcmp(members[i].name, name) == 0)
            return &members[i];
    return NULL;
}

bool field_structured_outputs(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    const char *name;
    json_t *value;
    if (!json_is_object(v))
        return reject_value(why, f->name, "structured_outputs must be an object.");
    json_object_foreach(v, name, value) {
        const struct member *m = member_of(name);
        if (json_is_null(value))
            continue;
        if (!m)
            return reject_unsupported(why, f->name,
                                      "structured_outputs.%.40s is not supported; json, json_object, regex, "
                                      "choice, grammar and structural_tag are.",
                                      name);
        if (!m->read(r, m->param, value, why))
            return false;
    }
    return true;
}

/* ---- older names, llama-server's and SGLang's ---- */

static bool read_json(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    return schema_or_text(r, f->name, v, why);
}

static bool read_regex(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    return regex(r, f->name, v, why);
}

static bool read_choice(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    return choice(r, f->name, v, why);
}

static bool read_grammar(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    return grammar(r, f->name, v, why);
}

/* An empty one is the default of some clients. */
static bool read_gbnf(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    bool empty = json_is_string(v) && json_string_length(v) == 0;
    return empty || text(r, f->name, GRAMMAR_GBNF, v, why);
}

static const struct field fields[] = {
    {"response_format", read_response_format},
    {"structured_outputs", field_structured_outputs},
    {"guided_json", read_json},
    {"guided_regex", read_regex},
    {"guided_choice", read_choice},
    {"guided_grammar", read_grammar},
    {"guided_decoding_backend", field_ignore_unless_off},
    {"guided_whitespace_pattern", field_ignore_unless_off},
    {"grammar", read_gbnf},
    {"json_schema", read_json},
    {"regex", read_regex},
    {"ebnf", read_gbnf},
};

const struct field_group fields_grammar = {fields, COUNT_OF(fields)};
