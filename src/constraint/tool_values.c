/* tool_values.c - values that a schema describes. A schema within the tool's refers to definitions of the
 * whole: it gets these beside its own keywords. */
#include "constraint/lark.h"
#include "constraint/tool_work.h"

#include "base/check.h"
#include "base/err.h"
#include "base/slice.h"
#include "grammar/grammar_expr.h"
#include "schema/schema.h"

#include <errno.h>
#include <stdlib.h>

bool tool_is_strict(const struct tool_work *w, const json_t *tool)
{
    (void)w;
    return json_is_true(json_object_get(tool, "strict"));
}

/* Fails if the tool is strict. Returns false: the value of a tool that is not strict may be any. */
static bool refused(struct tool_work *w, const json_t *tool, int r, const struct err *why)
{
    const char *name = json_string_value(json_object_get(tool, "name"));
    bool unsupported = r == -ENOTSUP || r == -EINVAL;
    if (!unsupported || tool_is_strict(w, tool))
        tool_fail(w, r, "tool \"%.64s\": %s", name ? name : "", why->text);
    return false;
}

static bool compile(struct tool_work *w, const json_t *tool, const json_t *schema, rx_id raw,
                    struct expr *ret)
{
    struct schema_opts opts = {
        .wanted = w->opts->wanted, .charge = w->opts->charge, .raw = raw, .plain = true};
    struct err why = {{0}};
    sym_id sym;
    int r = w->error ? w->error : schema_compile(w->b, schema, &opts, &sym, &why);
    if (r < 0)
        return refused(w, tool, r, &why);
    *ret = expr_sym(sym);
    return true;
}

/* A copy of a schema within the tool's, with the definitions of the whole. `type` is one more condition. */
static json_t *with_definitions(const json_t *tool, const json_t *schema, const char *type)
{
    static const char *const words[] = {"$defs", "definitions", "$schema"};
    const json_t *whole = json_object_get(tool, "parameters");
    json_t *copy = json_object(), *all = json_array();
    for (size_t i = 0; i < COUNT_OF(words); i++)
        if (json_object_get(whole, words[i]))
            json_object_set(copy, words[i], json_object_get(whole, words[i]));
    json_array_append(all, (json_t *)schema);
    json_object_set_new(copy, "allOf", all);
    if (type)
        json_object_set_new(copy, "type", json_string(type));
    return copy;
}

/* ---- by a Lark grammar ---- */

bool tool_has_lark(const json_t *tool)
{
    return json_string_length(json_object_get(tool, "lark")) > 0;
}

/* The text of the tool's grammar: raw and within `raw`, or as a JSON string (RX_NONE). */
static struct expr lark_value(struct tool_work *w, const json_t *tool, rx_id raw)
{
    const json_t *source = json_object_get(tool, "lark");
    struct slice text = {json_string_value(source), json_string_length(source)};
    struct lark_opts opts = {.charge = w->opts->charge, .within = raw};
    struct json_text json;
    struct err why = {{0}};
    sym_id sym = 0;
    json_text_init_plain(&json, w->b);
    if (raw == RX_NONE) {
        opts.encode = json_text_encode;
        opts.encode_arg = &json;
    }
    int r = w->error ? w->error : lark_compile_as(w->b, text, &opts, &sym, &why);
    if (r < 0) {
        const char *name = json_string_value(json_object_get(tool, "name"));
        tool_fail(w, r, "tool \"%.64s\": %s", name ? name : "", why.text);
        return expr_rx(RX_NONE);
    }
    struct expr quote = raw == RX_NONE ? tool_literal(w, "\"") : expr_rx(RX_EMPTY);
    return TOOL_CAT(w, quote, expr_sym(sym), quote);
}

/* The only member that such a tool has. */
static struct expr lark_arguments(struct tool_work *w, const json_t *tool)
{
    rx_id key = json_text_key(&w->json, '{', rx_literal(w->s, SLICE("input")));
    return TOOL_CAT(w, expr_rx(key), lark_value(w, tool, RX_NONE), expr_rx(json_text_close(&w->json, '}')));
}

bool tool_json_value(struct tool_work *w, const json_t *tool, const json_t *schema, struct expr *ret)
{
    if (tool_has_lark(tool)) {
        *ret = lark_value(w, tool, RX_NONE);
        return !w->error;
    }
    if (!schema || json_is_true(schema) || (json_is_object(schema) && json_object_size(schema) == 0)) {
        *ret = expr_sym(json_text_any(&w->json));
        return true;
    }
    json_t *copy = with_definitions(tool, schema, NULL);
    bool ok = compile(w, tool, copy, RX_NONE, ret);
    json_decref(copy);
    return ok;
}

bool tool_raw_value(struct tool_work *w, const json_t *tool, const json_t *schema, rx_id within,
                    struct expr *ret)
{
    if (tool_has_lark(tool)) {
        *ret = lark_value(w, tool, within);
        return !w->error;
    }
    json_t *copy = with_definitions(tool, schema, "string");
    bool ok = compile(w, tool, copy, within, ret);
    json_decref(copy);
    return ok;
}

bool tool_is_free_text(const json_t *schema)
{
    static const char *const words[] = {"enum",   "const", "pattern",    "minLength", "maxLength",
                                        "format", "allOf", "anyOf",      "oneOf",     "not",
                                        "if",     "$ref",  "$dynamicRef"};
    for (size_t i = 0; i < COUNT_OF(words); i++)
        if (json_object_get(schema, words[i]))
            return false;
    return !json_is_false(schema);
}

/* ---- arguments as JSON ---- */

struct expr tool_json_arguments(struct tool_work *w, const json_t *tool)
{
    const json_t *schema = json_object_get(tool, "parameters");
    if (tool_has_lark(tool))
        return lark_arguments(w, tool);
    struct expr any = expr_sym(json_text_object(&w->json)), ret;
    if (!tool_is_strict(w, tool) && !w->by_schema)
        return any;
    if (!schema || json_is_true(schema) || (json_is_object(schema) && json_object_size(schema) == 0))
        return any;
    /* The whole refers to itself by its root: it is not wrapped. */
    json_t *copy = json_is_object(schema) ? json_copy((json_t *)schema) : json_pack("{}");
    if (!json_is_object(schema))
        json_object_set_new(copy, "allOf", json_pack("[O]", schema));
    const json_t *type = json_object_get(copy, "type");
    if (!type)
        json_object_set_new(copy, "type", json_string("object"));
    bool ok = compile(w, tool, copy, RX_NONE, &ret);
    bool list = json_is_array(type),
         other = json_is_string(type) && strcmp(json_string_value(type), "object") != 0;
    if (ok && (list || other)) {
        struct err why = {{0}};
        ok = refused(w, tool, err_set(&why, -ENOTSUP, "the type of its parameters must be \"object\""), &why);
    }
    json_decref(copy);
    return ok ? ret : any;
}
