/* chat_calls_text.c - the inverse of the parser, for the encodings of templates that write no calls: a list
 * of JSON objects, one object a call, and calls of Python. Names and arguments are spaced as models do. */
#include "chat/chat_calls_text.h"

#include "chat/chat_syntax.h"

#include "base/check.h"
#include "base/json/json_out.h"
#include "base/json/json_write.h"

static void put(struct buf *ret, const char *text)
{
    if (text)
        buf_puts(ret, text);
}

bool chat_calls_text_knows(const struct chat_syntax *s)
{
    bool named = s->name_key && s->arguments_key && !s->id_key;
    return s->shape == CHAT_CALLS && !s->text_to && !s->marker[CHAT_ID_BEGIN] &&
           (s->arguments == CHAT_PYTHON || (s->arguments == CHAT_JSON_CALL && named));
}

/* ---- Python ---- */

static void put_python(struct buf *ret, const json_t *v)
{
    size_t i;
    const char *key;
    json_t *each;
    if (json_is_boolean(v) || json_is_null(v)) {
        buf_puts(ret, json_is_null(v) ? "None" : json_is_true(v) ? "True" : "False");
    } else if (json_is_array(v)) {
        buf_putc(ret, '[');
        json_array_foreach((json_t *)v, i, each) {
            put(ret, i ? ", " : NULL);
            put_python(ret, each);
        }
        buf_putc(ret, ']');
    } else if (json_is_object(v)) {
        bool first = true;
        buf_putc(ret, '{');
        json_object_foreach((json_t *)v, key, each) {
            put(ret, first ? NULL : ", ");
            first = false;
            json_write_string(ret, slice_of(key));
            buf_puts(ret, ": ");
            put_python(ret, each);
        }
        buf_putc(ret, '}');
    } else {
        json_write_spaced(ret, v);
    }
}

static void put_python_call(struct buf *ret, const char *name, const json_t *arguments)
{
    const char *key;
    json_t *each;
    bool first = true;
    buf_printf(ret, "%s(", name);
    if (json_is_string(arguments))
        buf_put(ret, json_string_value(arguments), json_string_length(arguments));
    json_object_foreach((json_t *)arguments, key, each) {
        buf_printf(ret, "%s%s=", first ? "" : ", ", key);
        first = false;
        put_python(ret, each);
    }
    buf_putc(ret, ')');
}

/* ---- JSON ---- */

static void put_json_call(const struct chat_syntax *s, struct buf *ret, const char *name,
                          const json_t *arguments)
{
    ASSERT(s->name_key && s->arguments_key);
    struct json_out j = {.buf = ret, .spaced = true};
    json_open(&j, NULL);
    json_put_string(&j, s->name_key, name);
    json_put_value(&j, s->arguments_key, arguments);
    json_end(&j);
}

/* ---- a list of calls ---- */

static void put_call(const struct chat_syntax *s, const json_t *call, struct buf *ret)
{
    const json_t *function = json_object_get(call, "function");
    const json_t *arguments = json_object_get(function, "arguments");
    const char *name = json_string_value(json_object_get(function, "name"));
    put(ret, s->marker[CHAT_CALL_BEGIN]);
    if (s->arguments == CHAT_PYTHON)
        put_python_call(ret, name ? name : "", arguments);
    else
        put_json_call(s, ret, name ? name : "", arguments);
    put(ret, s->marker[CHAT_CALL_END]);
}

void chat_calls_text_write(const struct chat_syntax *s, const json_t *calls, struct buf *ret)
{
    bool list = s->list || s->arguments == CHAT_PYTHON;
    bool opened = slice_ends(slice_of(s->marker[CHAT_SECTION_BEGIN]), SLICE("[")); /* by the marker */
    bool closed = slice_starts(slice_of(s->marker[CHAT_SECTION_END]), SLICE("]"));
    size_t i;
    json_t *call;
    ASSERT(chat_calls_text_knows(s));
    put(ret, s->marker[CHAT_SECTION_BEGIN]);
    put(ret, list && !opened ? "[" : NULL);
    json_array_foreach((json_t *)calls, i, call) {
        if (s->generic && i) {
            put(ret, s->marker[CHAT_SECTION_END]);
            put(ret, s->marker[CHAT_SECTION_BEGIN]);
        }
        put(ret, list && i ? ", " : NULL);
        put_call(s, call, ret);
    }
    put(ret, list && !closed ? "]" : NULL);
    put(ret, s->marker[CHAT_SECTION_END]);
}
