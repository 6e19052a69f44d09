/* chat_parser_tagged.c - parameters as tagged text. The tool's schema has their types: a string is emitted
 * while it arrives, another value when it is complete, because it has to be parsed. */
#include "chat/chat_parser_state.h"
#include "chat/tool_arguments.h"

#include "base/check.h"
#include "base/json/json_source_load.h"
#include "base/json/json_write.h"
#include "base/wide_integer.h"

#define STEP_MARKS                                                                                           \
    (CHAT_MARK_BIT(CHAT_KEY_BEGIN) | CHAT_MARK_BIT(CHAT_CALL_END) | CHAT_MARK_BIT(CHAT_SECTION_END))

/* How much of a value is looked at for the end of its call. */
#define FORGOTTEN_BYTES_MAX 128

bool chat_step_keys(struct chat_parser *p)
{
    if (chat_skip_blanks(p))
        return false;
    struct slice s = chat_rest(p);
    enum chat_marker found;
    if (chat_is_mark(p, s, CHAT_KEY_BEGIN)) {
        chat_consume(p, p->mark[CHAT_KEY_BEGIN].len);
        p->state = CHAT_AT_KEY;
        return true;
    }
    if (chat_is_mark(p, s, CHAT_CALL_END) || chat_is_mark(p, s, CHAT_SECTION_END)) {
        /* The end of the section ends the call as well. */
        chat_emit_arguments(p, SLICE("}"));
        chat_end_call(p);
        return true;
    }
    if (chat_may_become(p, s, CHAT_KEY_BEGIN) || chat_may_become(p, s, CHAT_CALL_END) ||
        chat_may_become(p, s, CHAT_SECTION_END))
        return false;
    /* Stray text between parameters. */
    size_t next = chat_find_mark(p, s, 1, STEP_MARKS, &found);
    chat_consume(p, next == SIZE_MAX ? MAX_OF((size_t)1, s.len - chat_mark_tail(p, s, STEP_MARKS)) : next);
    return true;
}

bool chat_step_key(struct chat_parser *p)
{
    struct slice s = chat_rest(p);
    enum chat_marker found;
    if (chat_is_mark(p, s, CHAT_KEY_BEGIN)) { /* the model wrote it twice */
        chat_consume(p, p->mark[CHAT_KEY_BEGIN].len);
        return true;
    }
    uint32_t marks = CHAT_MARK_BIT(CHAT_KEY_END) | CHAT_MARK_BIT(CHAT_KEY_END_JSON);
    size_t at = chat_await_mark(p, marks, &found);
    if (at == SIZE_MAX)
        return false;
    buf_clear(&p->key);
    chat_put_text(p, slice_sub(s, 0, at), &p->key);
    ASSERT(at + p->mark[found].len <= s.len);
    chat_consume(p, at + p->mark[found].len);
    p->value_json = found == CHAT_KEY_END_JSON;
    bool typed = p->mark[CHAT_KEY_END_JSON].len > 0; /* the markers say what is a string */
    p->value_streams = !p->value_json && (typed || tool_argument_is_text(p->opts.tools, buf_slice(&p->name),
                                                                         buf_slice(&p->key)));
    p->value_begun = p->value_open = false;
    p->state = p->mark[CHAT_VALUE_BEGIN].len ? CHAT_AT_VALUE_BEGIN : CHAT_AT_VALUE;
    return true;
}

bool chat_step_value_begin(struct chat_parser *p)
{
    if (chat_skip_blanks(p))
        return false;
    struct slice s = chat_rest(p);
    if (chat_may_become(p, s, CHAT_VALUE_BEGIN) || chat_may_become(p, s, CHAT_KEY_END))
        return false;
    if (chat_is_mark(p, s, CHAT_KEY_END)) { /* the model wrote it twice */
        chat_consume(p, p->mark[CHAT_KEY_END].len);
        return true;
    }
    bool begins = chat_is_mark(p, s, CHAT_VALUE_BEGIN);
    if (begins)
        chat_consume(p, p->mark[CHAT_VALUE_BEGIN].len);
    p->state = begins ? CHAT_AT_VALUE : CHAT_AT_KEYS;
    return true;
}

/* The template writes a line end there, which is not the value's. */
static bool writes_line_end(const char *marker, bool first)
{
    struct slice s = slice_of(marker);
    return s.len && (first ? s.ptr[0] : s.ptr[s.len - 1]) == '\n';
}

static struct slice without_blanks(struct slice s)
{
    while (s.len && slice_is_blank(s.ptr[0]))
        s = slice_sub(s, 1, s.len);
    return s;
}

static void put_key(struct chat_parser *p)
{
    if (p->parameters++ > 0)
        buf_puts(&p->json, ", ");
    json_write_string(&p->json, buf_slice(&p->key));
    buf_puts(&p->json, ": ");
}

/* The next `bytes` of a string. */
static void stream_string(struct chat_parser *p, size_t bytes, bool last)
{
    ASSERT(p->value_streams);
    ASSERT(bytes <= chat_rest(p).len);
    if (bytes == 0 && !last)
        return;
    buf_clear(&p->json);
    if (!p->value_open)
        put_key(p);
    struct buf text;
    buf_init(&text, SIZE_MAX / 4, p->opts.charge);
    chat_put_text(p, slice_sub(chat_rest(p), 0, bytes), &text);
    size_t from = p->json.len;
    json_write_string(&p->json, buf_slice(&text));
    if (!last)
        p->json.len--;
    if (p->value_open && !p->json.error) /* its quote was written before */
        memmove(p->json.ptr + from, p->json.ptr + from + 1, --p->json.len - from);
    if (text.error && !p->error)
        p->error = text.error;
    buf_done(&text);
    p->value_open = true;
    chat_emit_arguments(p, buf_slice(&p->json));
    chat_consume(p, bytes);
}

static void put_json_value(struct chat_parser *p, struct slice text)
{
    json_error_t e;
    struct wide_integers wide = {0}, *before = wide_integers_enter(&wide);
    json_t *value = json_source_load(text, JSON_DECODE_ANY, &e);
    if (value)
        json_write_value(&p->json, value);
    else
        json_write_string(&p->json, text);
    json_decref(value);
    wide_integers_enter(before);
}

static void emit_whole(struct chat_parser *p, struct slice value)
{
    ASSERT(!p->value_streams && !p->value_open);
    struct buf text;
    buf_init(&text, SIZE_MAX / 4, p->opts.charge);
    chat_put_text(p, value, &text);
    buf_clear(&p->json);
    put_key(p);
    if (p->value_json)
        put_json_value(p, buf_slice(&text));
    else
        tool_argument_write(&p->json, p->opts.tools, buf_slice(&p->name), buf_slice(&p->key),
                            buf_slice(&text));
    if (text.error && !p->error)
        p->error = text.error;
    buf_done(&text);
    chat_emit_arguments(p, buf_slice(&p->json));
}

/* The value has `bytes`, and its markup ends at `to`. */
static void end_value(struct chat_parser *p, size_t bytes, size_t to)
{
    ASSERT(bytes <= to);
    if (p->value_streams) {
        stream_string(p, bytes, true);
        chat_consume(p, to - bytes);
    } else {
        emit_whole(p, slice_sub(chat_rest(p), 0, bytes));
        chat_consume(p, to);
    }
    p->value_open = false;
    p->state = CHAT_AT_KEYS;
}

/* The line end before the value. False: it is not known yet whether there is one. */
static bool begin_value(struct chat_parser *p)
{
    ASSERT(!p->value_begun);
    const struct chat_syntax *s = p->opts.syntax;
    const char *before = s->marker[CHAT_VALUE_BEGIN] ? s->marker[CHAT_VALUE_BEGIN] : s->marker[CHAT_KEY_END];
    struct slice rest = chat_rest(p);
    if (rest.len == 0)
        return false;
    p->value_begun = true;
    if (writes_line_end(before, false) && rest.ptr[0] == '\n')
        chat_consume(p, 1);
    return true;
}

/* The output may end, or ends, with a call whose last value has no end: where the call's end begins.
 * SIZE_MAX: not so. */
static size_t forgotten_end(const struct chat_parser *p, struct slice s)
{
    enum chat_marker found;
    size_t least = s.len > FORGOTTEN_BYTES_MAX ? s.len - FORGOTTEN_BYTES_MAX : 0, at = SIZE_MAX;
    size_t next = chat_find_mark(p, s, least, CHAT_MARK_BIT(CHAT_CALL_END), &found);
    while (next != SIZE_MAX) {
        at = next;
        next = chat_find_mark(p, s, at + 1, CHAT_MARK_BIT(CHAT_CALL_END), &found);
    }
    if (at == SIZE_MAX)
        return at;
    struct slice rest = without_blanks(slice_sub(s, at + p->mark[CHAT_CALL_END].len, s.len));
    if (chat_is_mark(p, rest, CHAT_SECTION_END))
        rest = without_blanks(slice_sub(rest, p->mark[CHAT_SECTION_END].len, rest.len));
    return rest.len == 0 || chat_may_become(p, rest, CHAT_SECTION_END) ? at : SIZE_MAX;
}

bool chat_step_value(struct chat_parser *p)
{
    if (!p->value_begun && !begin_value(p))
        return false;
    struct slice s = chat_rest(p);
    uint32_t marks = CHAT_MARK_BIT(CHAT_VALUE_END);
    bool line = writes_line_end(p->opts.syntax->marker[CHAT_VALUE_END], true);
    enum chat_marker found;
    size_t at = chat_find_mark(p, s, p->scanned, marks, &found);
    size_t end = at == SIZE_MAX ? s.len - chat_mark_tail(p, s, marks) : at;
    size_t scanned = end, forgotten = at == SIZE_MAX ? forgotten_end(p, s) : SIZE_MAX;
    if (at == SIZE_MAX && !p->over)
        end = MIN_OF(s.len - chat_mark_tail(p, s, marks | CHAT_MARK_BIT(CHAT_CALL_END)), forgotten);
    else if (forgotten != SIZE_MAX)
        end = forgotten;
    if (line && end > 0 && s.ptr[end - 1] == '\n')
        end--;
    ASSERT(end <= s.len);
    if (forgotten != SIZE_MAX && p->over) {
        end_value(p, end, forgotten);
        return true;
    }
    if (at == SIZE_MAX) {
        if (p->value_streams)
            stream_string(p, end, false);
        else
            p->scanned = scanned;
        return false;
    }
    end_value(p, end, at + p->mark[CHAT_VALUE_END].len);
    return true;
}

void chat_finish_tagged(struct chat_parser *p)
{
    if (p->state == CHAT_AT_VALUE && p->value_open)
        chat_emit_arguments(p, SLICE("\""));
    chat_emit_arguments(p, SLICE("}"));
}
