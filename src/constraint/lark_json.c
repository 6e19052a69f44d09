/* lark_json.c - a client of llguidance reads the output with the grammar that it sent, so separators are
 * exactly those of "x-guidance". Without any, llguidance takes all white space of json_text.h, and more. */
#include "constraint/lark_json.h"

#include "constraint/front_text.h"

#include "base/check.h"
#include "base/json/json_source_load.h"
#include "grammar/grammar_expr.h"
#include "rx/rx_parse.h"
#include "schema/json_text.h"
#include "schema/schema.h"

#include <errno.h>

/* The expression of a member that is a pattern, `absent` without it. */
static rx_id pattern_of(struct front_text *f, const json_t *style, const char *name, rx_id absent)
{
    const json_t *value = json_object_get(style, name);
    struct slice pattern = {json_string_value(value), json_string_length(value)};
    struct err why = {{0}};
    rx_id rx = absent;
    int r = !value || json_is_null(value) ? 0 : -EINVAL;
    if (json_is_string(value))
        r = rx_parse(grammar_rx(f->b), pattern, NULL, &rx, &why);
    if (r < 0)
        front_text_fail(f, r, "x-guidance, %s: %s", name, why.text[0] ? why.text : "a pattern is needed");
    return f->error ? absent : rx;
}

static bool flag_of(struct front_text *f, const json_t *style, const char *name, bool absent)
{
    const json_t *value = json_object_get(style, name);
    if (value && !json_is_boolean(value))
        front_text_fail(f, -EINVAL, "x-guidance, %s: true or false is needed", name);
    return value ? json_is_true(value) : absent;
}

/* Reading oneOf as anyOf, or passing over keywords, allows more texts, so either has no effect here. */
static void check_names(struct front_text *f, const json_t *style)
{
    static const char *const known[] = {"item_separator",     "key_separator", "whitespace_flexible",
                                        "whitespace_pattern", "coerce_one_of", "lenient"};
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)style, name, value) {
        bool found = false;
        for (size_t i = 0; i < COUNT_OF(known); i++)
            found = found || strcmp(name, known[i]) == 0;
        if (!found)
            front_text_fail(f, -ENOTSUP, "x-guidance, %.40s: not supported", name);
    }
}

static void read_style(struct front_text *f, const json_t *style, struct json_spacing *ret)
{
    struct rx_store *s = grammar_rx(f->b);
    struct json_text usual;
    json_text_init_plain(&usual, f->b);
    if (!json_is_object(style))
        front_text_fail(f, -EINVAL, "x-guidance is a JSON object");
    check_names(f, style);
    rx_id none = flag_of(f, style, "whitespace_flexible", true) ? usual.space : (rx_id)RX_EMPTY;
    rx_id space = rx_repeat(s, pattern_of(f, style, "whitespace_pattern", none), 0, 1);
    rx_id comma = pattern_of(f, style, "item_separator", rx_literal(s, SLICE(",")));
    rx_id colon = pattern_of(f, style, "key_separator", rx_literal(s, SLICE(":")));
    if (!f->error && (rx_nullable(s, comma) || rx_nullable(s, colon)))
        front_text_fail(f, -EINVAL, "x-guidance: a separator matches the empty text");
    *ret = (struct json_spacing){space, rx_cat(s, comma, space), rx_cat(s, colon, space)};
}

struct expr lark_json(struct front_text *f, struct slice schema)
{
    json_error_t syntax;
    struct err why = {{0}};
    struct json_spacing spacing;
    sym_id sym = 0;
    bool other = !f->schemas || f->encode || f->within != RX_NONE;
    if (other)
        front_text_fail(f, -ENOTSUP, "%%json is not supported in this kind of grammar");
    json_t *value =
        f->error ? NULL : json_source_load(schema, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &syntax);
    if (!value) {
        front_text_fail(f, -EINVAL, "%%json needs a JSON object");
        return expr_rx(RX_NONE);
    }
    struct schema_opts opts = *f->schemas;
    const json_t *style = json_object_get(value, "x-guidance");
    if (style) {
        read_style(f, style, &spacing);
        opts.spacing = &spacing;
    }
    int r = f->error ? f->error : schema_compile(f->b, value, &opts, &sym, &why);
    json_decref(value);
    if (r < 0)
        front_text_fail(f, r, "%%json: %s", why.text);
    return f->error ? expr_rx(RX_NONE) : expr_sym(sym);
}
