/* chat_parser_object.c - calls as JSON objects with name and arguments inside, alone or in a list.
 *
 * A call begins when its arguments do, and its arguments are streamed; arguments before the name wait
 * for it. Until then `raw` keeps the bytes read, because an object without a name is content. A call without
 * a marker before it (`bare`) begins when its second key is read: only then is it no ordinary JSON. */
#include "chat/chat_parser_state.h"

#include "base/check.h"
#include "base/json/json_source_load.h"

#define BARE_BYTES_MAX 512

void chat_object_start(struct chat_parser *p, bool in_list, bool bare)
{
    struct buf raw = p->object.raw, early = p->object.early;
    raw.len = early.len = 0;
    p->object = (struct chat_object){.raw = raw, .early = early};
    p->in_list = in_list;
    p->bare = bare;
    p->state = CHAT_AT_OBJECT;
}

static void take(struct chat_parser *p, size_t bytes)
{
    ASSERT(bytes <= chat_rest(p).len);
    if (!p->object.begun)
        buf_put_slice(&p->object.raw, slice_sub(chat_rest(p), 0, bytes));
    chat_consume(p, bytes);
}

/* The bytes read are content, not a call. */
static bool to_content(struct chat_parser *p)
{
    if (p->object.begun) {
        if (!p->object.has_arguments)
            chat_emit_arguments(p, SLICE("{}"));
        chat_end_call(p);
    } else {
        chat_emit(p, CHAT_CONTENT, buf_slice(&p->object.raw));
    }
    p->object.raw.len = 0;
    p->at_start = false;
    if (p->in_section && p->mark[CHAT_SECTION_END].len) {
        p->state = CHAT_AT_SECTION;
        return true;
    }
    chat_to_text(p);
    p->skip_blank = false;
    return true;
}

/* Takes white space and bytes of `also`. False when there may be more. */
static bool take_blanks(struct chat_parser *p, const char *also)
{
    struct slice s = chat_rest(p);
    size_t n = 0;
    while (n < s.len && (slice_is_blank(s.ptr[n]) || (s.ptr[n] && strchr(also, s.ptr[n]))))
        n++;
    take(p, n);
    return n < s.len;
}

/* The bytes of the JSON string at the start of the rest; 0: its end is missing. */
static size_t string_bytes(struct chat_parser *p)
{
    struct slice s = chat_rest(p);
    ASSERT(s.len > 0 && s.ptr[0] == '"');
    size_t i = MAX_OF(p->scanned, (size_t)1);
    while (i < s.len && s.ptr[i] != '"' && (s.ptr[i] != '\\' || i + 1 < s.len))
        i += s.ptr[i] == '\\' ? 2 : 1;
    p->scanned = i;
    return i < s.len && s.ptr[i] == '"' ? i + 1 : 0;
}

static bool decode(struct slice quoted, struct buf *ret)
{
    json_error_t e;
    json_t *value = json_source_load(quoted, JSON_DECODE_ANY | JSON_ALLOW_NUL, &e);
    buf_clear(ret);
    if (value)
        buf_put(ret, json_string_value(value), json_string_length(value));
    json_decref(value);
    return value != NULL;
}

/* Takes the string there. 1, 0: its end is missing, or -1: it is not a string. */
static int take_string(struct chat_parser *p, struct buf *ret)
{
    struct slice s = chat_rest(p);
    ASSERT(s.len > 0);
    if (s.ptr[0] != '"')
        return -1;
    size_t n = string_bytes(p);
    if (n == 0)
        return 0;
    if (!decode(slice_sub(s, 0, n), ret))
        return -1;
    take(p, n);
    return 1;
}

static bool key_is(const struct chat_parser *p, const char *a, const char *b, const char *c)
{
    struct slice key = buf_slice(&p->key);
    return (a && slice_eq(key, slice_of(a))) || (b && slice_eq(key, slice_of(b))) ||
           (c && slice_eq(key, slice_of(c)));
}

static bool name_is_key(const struct chat_parser *p)
{
    const struct chat_syntax *s = p->opts.syntax;
    return s->arguments == CHAT_JSON_CALL && !s->name_key && p->object.depth == 1;
}

static void begin_object_call(struct chat_parser *p)
{
    ASSERT(!p->object.begun);
    p->object.begun = true;
    p->object.raw.len = 0;
    chat_begin_call(p);
}

/* Arguments before the name wait for it. */
static void put_arguments(struct chat_parser *p, struct slice text)
{
    if (p->object.begun)
        chat_emit_arguments(p, text);
    else
        buf_put_slice(&p->object.early, text);
}

static bool end_object(struct chat_parser *p)
{
    struct chat_object *o = &p->object;
    ASSERT(o->depth == 0);
    bool call = o->named && (!p->bare || o->has_arguments || chat_is_offered(p, buf_slice(&p->name), false));
    if (!o->begun && !call)
        return to_content(p);
    if (!o->begun) {
        begin_object_call(p);
        chat_emit_arguments(p, buf_slice(&o->early));
    }
    if (!o->has_arguments)
        chat_emit_arguments(p, SLICE("{}"));
    chat_end_call(p);
    o->begun = o->named = o->has_arguments = false;
    o->raw.len = 0;
    if (p->in_list) {
        o->state = CHAT_OBJECT_BEGIN;
        p->state = CHAT_AT_OBJECT;
    }
    return true;
}

static bool step_begin(struct chat_parser *p)
{
    if (!take_blanks(p, p->in_list ? "," : ""))
        return false;
    ASSERT(!p->object.begun);
    char c = chat_rest(p).ptr[0];
    if (c == '[' && !p->in_list) {
        take(p, 1);
        p->in_list = true;
        return true;
    }
    if (c == ']' && p->in_list) {
        if (p->section_calls == 0 && p->bare) {
            take(p, 1);
            return to_content(p);
        }
        chat_consume(p, 1);
        p->in_list = p->section_lists = false;
        p->object.raw.len = 0;
        p->state = CHAT_AT_AFTER;
        return true;
    }
    if (c != '{')
        return to_content(p);
    take(p, 1);
    buf_clear(&p->name);
    buf_clear(&p->id);
    p->object.depth = 1;
    p->object.named = p->object.has_arguments = p->object.begun = false;
    p->object.early.len = 0;
    p->object.state = CHAT_OBJECT_KEY;
    return true;
}

/* A call without a marker before it would have begun by now. */
static bool too_long(const struct chat_parser *p, size_t more)
{
    return p->bare && !p->object.begun && p->object.raw.len + more > BARE_BYTES_MAX;
}

static bool step_key(struct chat_parser *p)
{
    ASSERT(p->object.depth > 0);
    if (!take_blanks(p, ","))
        return false;
    if (chat_rest(p).ptr[0] == '}') {
        take(p, 1);
        return --p->object.depth > 0 || end_object(p);
    }
    int r = take_string(p, &p->key);
    if (r == 0 && !too_long(p, chat_rest(p).len))
        return false;
    if (r <= 0 || too_long(p, 0))
        return to_content(p);
    p->object.state = CHAT_OBJECT_COLON;
    return true;
}

static bool step_colon(struct chat_parser *p)
{
    if (!take_blanks(p, ""))
        return false;
    if (chat_rest(p).ptr[0] != ':')
        return to_content(p);
    take(p, 1);
    p->object.state = CHAT_OBJECT_VALUE;
    return true;
}

/* A value that is a string, into `ret`. */
static bool take_member(struct chat_parser *p, struct buf *ret, bool *taken)
{
    int r = take_string(p, ret);
    if (r == 0 && !too_long(p, chat_rest(p).len))
        return false;
    if (r <= 0 || too_long(p, 0))
        return to_content(p);
    *taken = true;
    p->object.state = CHAT_OBJECT_KEY;
    return true;
}

static bool begin_arguments(struct chat_parser *p, char c)
{
    struct chat_object *o = &p->object;
    if (!o->named && p->bare)
        return to_content(p);
    if (o->named && !o->begun)
        begin_object_call(p);
    o->has_arguments = true;
    o->state = CHAT_OBJECT_ARGUMENTS;
    json_stream_restart(&p->stream);
    p->value_begun = c != '"' && c != 'n'; /* false: complete it first, it is a text or null */
    return true;
}

static bool step_value(struct chat_parser *p)
{
    const struct chat_syntax *s = p->opts.syntax;
    if (!take_blanks(p, ""))
        return false;
    char c = chat_rest(p).ptr[0];
    if (name_is_key(p) && !p->object.named) {
        buf_clear(&p->name);
        buf_put_slice(&p->name, buf_slice(&p->key));
        p->object.named = true;
        return begin_arguments(p, c);
    }
    if (key_is(p, "function", NULL, NULL) && c == '{') {
        take(p, 1);
        p->object.depth++;
        p->object.state = CHAT_OBJECT_KEY;
        return true;
    }
    if (key_is(p, s->name_key, "name", "function") && !p->object.named)
        return take_member(p, &p->name, &p->object.named);
    if (c == '"' && s->id_key && key_is(p, s->id_key, NULL, NULL))
        return take_member(p, &p->id, &(bool){false});
    if (key_is(p, s->arguments_key, "arguments", "parameters") && !p->object.has_arguments)
        return begin_arguments(p, c);
    if (p->bare && !p->object.begun && !key_is(p, "type", "id", NULL))
        return to_content(p);
    json_stream_restart(&p->stream);
    p->object.state = CHAT_OBJECT_SKIP;
    return true;
}

/* Feeds the value, and keeps its bytes in `raw` while the call has not begun. True: it is over. */
static bool feed(struct chat_parser *p)
{
    struct slice before = chat_rest(p);
    bool done = chat_feed_json(p);
    ASSERT(chat_rest(p).len <= before.len);
    if (!p->object.begun)
        buf_put(&p->object.raw, before.ptr, before.len - chat_rest(p).len);
    return done;
}

static bool step_skip(struct chat_parser *p)
{
    bool done = feed(p);
    if (too_long(p, 0))
        return to_content(p);
    if (done)
        p->object.state = CHAT_OBJECT_KEY;
    return done;
}

/* Arguments as text that has JSON inside, or null. */
static bool step_text_arguments(struct chat_parser *p)
{
    struct slice s = chat_rest(p);
    ASSERT(s.len > 0);
    size_t n = s.ptr[0] == '"' ? string_bytes(p) : s.len >= 4 ? 4 : 0;
    if (n == 0)
        return false;
    ASSERT(n <= s.len);
    if (s.ptr[0] == '"' && !decode(slice_sub(s, 0, n), &p->json)) {
        p->value_begun = true;
        return true;
    }
    if (s.ptr[0] != '"') {
        buf_clear(&p->json);
        buf_puts(&p->json, "{}");
    }
    take(p, n);
    p->object.state = CHAT_OBJECT_KEY;
    put_arguments(p, buf_slice(&p->json));
    return true;
}

static bool step_arguments(struct chat_parser *p)
{
    if (!p->value_begun)
        return step_text_arguments(p);
    bool done = feed(p);
    put_arguments(p, buf_slice(&p->json));
    if (done)
        p->object.state = CHAT_OBJECT_KEY;
    return done;
}

bool chat_step_object(struct chat_parser *p)
{
    switch (p->object.state) {
    case CHAT_OBJECT_BEGIN:
        return step_begin(p);
    case CHAT_OBJECT_KEY:
        return step_key(p);
    case CHAT_OBJECT_COLON:
        return step_colon(p);
    case CHAT_OBJECT_VALUE:
        return step_value(p);
    case CHAT_OBJECT_ARGUMENTS:
        return step_arguments(p);
    case CHAT_OBJECT_SKIP:
        return step_skip(p);
    }
    return false;
}

/* A key, or its head, that a call may have. */
static bool may_be_key(const struct chat_parser *p, struct slice s)
{
    const struct chat_syntax *syntax = p->opts.syntax;
    const char *keys[] = {"name", "function", "type", "id", syntax->name_key, syntax->id_key};
    bool all = s.len == 0;
    if (s.len && s.ptr[0] == '"')
        s = slice_sub(s, 1, s.len);
    for (size_t i = 0; i < COUNT_OF(keys) && !all; i++)
        all = keys[i] && slice_starts(slice_of(keys[i]), s);
    return all;
}

/* True if an object without a marker before it is the head of a call as far as it was read. */
static bool may_be_call(const struct chat_parser *p)
{
    const struct chat_object *o = &p->object;
    struct slice rest = chat_rest(p);
    bool name = key_is(p, p->opts.syntax->name_key, "name", "function");
    switch (o->state) {
    case CHAT_OBJECT_KEY:
        return o->named || may_be_key(p, rest);
    case CHAT_OBJECT_VALUE:
        return o->named || !name || !rest.len || chat_is_offered(p, slice_sub(rest, 1, rest.len), true);
    default:
        return true;
    }
}

void chat_finish_object(struct chat_parser *p)
{
    struct chat_object *o = &p->object;
    if (!o->begun) {
        /* A call without its name is dropped; what may be text is shown, unless it was cut. */
        if (p->bare && !(p->cut && may_be_call(p))) {
            chat_emit(p, CHAT_CONTENT, buf_slice(&o->raw));
            chat_emit(p, CHAT_CONTENT, chat_rest(p));
        }
        return;
    }
    if (p->cut && (o->state == CHAT_OBJECT_ARGUMENTS || !o->has_arguments)) {
        chat_cut_call(p);
        return;
    }
    if (o->state == CHAT_OBJECT_ARGUMENTS) {
        buf_clear(&p->json);
        if (p->value_begun)
            json_stream_close(&p->stream, &p->json);
        else
            buf_puts(&p->json, "{}");
        chat_emit_arguments(p, buf_slice(&p->json));
    } else if (!o->has_arguments) {
        chat_emit_arguments(p, SLICE("{}"));
    }
    chat_end_call(p);
}
