/* chat_parser_json.c - a call's name between markers, and arguments that are one JSON object. */
#include "chat/chat_parser_state.h"

#include "base/check.h"

#define PLAIN_NAME_BYTES_MAX 128

static void set_text(struct chat_parser *p, struct buf *ret, struct slice s)
{
    buf_clear(ret);
    chat_put_text(p, slice_trim(s, SLICE_BLANKS), ret);
}

/* functions.NAME:N is the id, and has the name. Without a NAME all of it is the name. */
static void take_name_of_id(struct chat_parser *p)
{
    struct slice s = buf_slice(&p->name);
    buf_clear(&p->id);
    buf_put_slice(&p->id, s);
    size_t end = s.len, from = slice_starts(s, SLICE("functions.")) ? 10 : 0;
    while (end > from && s.ptr[end - 1] >= '0' && s.ptr[end - 1] <= '9')
        end--;
    if (end == s.len || end == from || s.ptr[end - 1] != ':')
        end = s.len + 1;
    if (end - 1 == from)
        return;
    ASSERT(end > from);
    p->name.len = end - 1;
    buf_consume(&p->name, from);
}

static void to_arguments(struct chat_parser *p)
{
    ASSERT(p->name.len > 0);
    p->value_begun = p->value_open = p->value_streams = false;
    if (p->opts.syntax->id_names)
        take_name_of_id(p);
    chat_begin_call(p);
    switch (p->opts.syntax->arguments) {
    case CHAT_TAGGED:
        chat_emit_arguments(p, SLICE("{"));
        p->state = CHAT_AT_KEYS;
        break;
    case CHAT_BRACED:
        chat_emit_arguments(p, SLICE("{"));
        chat_literal_restart(&p->literal);
        p->in_list = false;
        p->list_state = CHAT_LIST_ARGUMENTS;
        p->state = CHAT_AT_LITERAL;
        break;
    default:
        json_stream_restart(&p->stream);
        p->state = CHAT_AT_JSON;
    }
}

/* A marker that was none. The first one of a reply may have been the prompt's. */
static bool not_a_name(struct chat_parser *p)
{
    if (!p->at_start || !p->opens.len) {
        chat_emit(p, CHAT_CONTENT, buf_slice(&p->key));
        chat_emit(p, CHAT_CONTENT, p->mark[CHAT_CALL_BEGIN]);
    }
    p->state = CHAT_AT_TEXT;
    p->at_start = p->skip_blank = false;
    return true;
}

static bool is_plain(struct slice s)
{
    if (s.len > PLAIN_NAME_BYTES_MAX)
        return false;
    for (size_t i = 0; i < s.len; i++) {
        char c = s.ptr[i];
        bool letter = (c | 32) >= 'a' && (c | 32) <= 'z', digit = c >= '0' && c <= '9';
        if (!letter && !digit && c != '_' && c != '-' && c != '.')
            return false;
    }
    return true;
}

/* The end of the name or id, and the marker there; without NAME_END the arguments' first one ends it. The
 * search begins at *scanned, and is noted there when it fails. */
static size_t name_end(struct chat_parser *p, struct slice s, uint32_t marks, size_t *scanned,
                       enum chat_marker *found)
{
    ASSERT(*scanned <= s.len);
    bool json = p->opts.syntax->arguments == CHAT_JSON;
    if (p->opts.syntax->arguments == CHAT_TAGGED && !p->mark[CHAT_NAME_END].len)
        marks |= CHAT_MARK_BIT(CHAT_KEY_BEGIN) | CHAT_MARK_BIT(CHAT_CALL_END);
    size_t at = chat_find_mark(p, s, *scanned, marks, found);
    const char *brace = json && s.len ? memchr(s.ptr + *scanned, '{', s.len - *scanned) : NULL;
    if (brace && (size_t)(brace - s.ptr) < at) {
        *found = CHAT_MARKER_COUNT;
        return (size_t)(brace - s.ptr);
    }
    if (at == SIZE_MAX)
        *scanned = s.len - chat_mark_tail(p, s, marks);
    return at;
}

static bool step_plain_name(struct chat_parser *p, struct slice s, size_t at)
{
    struct slice name = at == SIZE_MAX ? s : slice_sub(s, 0, at);
    bool ended = at == SIZE_MAX && p->over && !p->cut;
    if (!is_plain(name) || (at != SIZE_MAX && name.len == 0) || ended)
        return not_a_name(p);
    return at != SIZE_MAX;
}

/* True for calls in JSON whose name is an object: an older variant of the format. */
static bool is_object(struct chat_parser *p, struct slice s)
{
    size_t n = 0;
    while (n < s.len && n < CHAT_BLANKS_MAX && slice_is_blank(s.ptr[n]))
        n++;
    return p->opts.syntax->arguments == CHAT_JSON && n < s.len && (s.ptr[n] == '{' || s.ptr[n] == '[');
}

bool chat_step_name(struct chat_parser *p)
{
    struct slice s = chat_rest(p);
    enum chat_marker found = CHAT_NAME_END;
    bool plain = p->opts.syntax->plain_names;
    if (!plain && s.len && chat_may_become(p, s, CHAT_CALL_BEGIN))
        return false;
    if (!plain && chat_is_mark(p, s, CHAT_CALL_BEGIN)) { /* the model wrote it twice */
        chat_consume(p, p->mark[CHAT_CALL_BEGIN].len);
        return true;
    }
    if (!plain && is_object(p, s)) {
        chat_object_start(p, false, false);
        return true;
    }
    size_t at = name_end(p, s, CHAT_MARK_BIT(CHAT_NAME_END) | CHAT_MARK_BIT(CHAT_ID_BEGIN), &p->scanned,
                         &found),
           end = at;
    if (plain && (!step_plain_name(p, s, at) || p->state == CHAT_AT_TEXT))
        return p->state == CHAT_AT_TEXT;
    if (at == SIZE_MAX)
        return false;
    buf_clear(&p->id);
    if (found == CHAT_ID_BEGIN) {
        struct slice id = slice_sub(s, at + p->mark[CHAT_ID_BEGIN].len, s.len);
        size_t bytes = name_end(p, id, CHAT_MARK_BIT(CHAT_NAME_END), &p->id_scanned, &found);
        if (bytes == SIZE_MAX)
            return false;
        set_text(p, &p->id, slice_sub(id, 0, bytes));
        end = s.len - id.len + bytes;
    }
    set_text(p, &p->name, slice_sub(s, 0, at));
    ASSERT(at <= end && end <= s.len);
    chat_consume(p, end + (found == CHAT_NAME_END ? p->mark[CHAT_NAME_END].len : 0));
    if (p->name.len == 0) {
        p->state = CHAT_AT_AFTER;
    } else if (plain && slice_eq(buf_slice(&p->name), slice_of(p->opts.syntax->text_to))) {
        p->state = CHAT_AT_TEXT;
        p->at_start = p->skip_blank = false;
    } else {
        to_arguments(p);
    }
    return true;
}

/* Arguments that do not begin as JSON: none, or passed on up to the end of the call. */
static bool step_raw(struct chat_parser *p, struct slice s)
{
    enum chat_marker found;
    size_t at = chat_find_mark(p, s, 0, CHAT_CALL_MARKS, &found);
    if (at == SIZE_MAX) {
        size_t held = p->over ? 0 : chat_mark_tail(p, s, CHAT_CALL_MARKS);
        size_t end = chat_without_blank_tail(slice_sub(s, 0, s.len - held));
        chat_emit_arguments(p, slice_sub(s, 0, end));
        p->value_streams = p->value_streams || end > 0;
        chat_consume(p, end);
        return false;
    }
    struct slice raw = slice_sub(s, 0, chat_without_blank_tail(slice_sub(s, 0, at)));
    chat_emit_arguments(p, raw.len || p->value_streams ? raw : SLICE("{}"));
    chat_consume(p, at);
    chat_end_call(p);
    return true;
}

/* The model wrote the marker before the arguments twice, or the text may become that. */
static bool second_name_end(struct chat_parser *p, struct slice s)
{
    struct slice mark = p->mark[CHAT_NAME_END];
    if (!slice_starts(mark, s) && !chat_is_mark(p, s, CHAT_NAME_END))
        return false;
    if (s.len >= mark.len || p->over)
        chat_consume(p, MIN_OF(s.len, mark.len));
    return true;
}

bool chat_step_json(struct chat_parser *p)
{
    if (!p->value_begun && !p->value_streams && chat_skip_blanks(p))
        return false;
    struct slice s = chat_rest(p);
    if (!p->value_begun && !p->value_streams && second_name_end(p, s))
        return chat_is_mark(p, s, CHAT_NAME_END);
    if (p->value_streams || (!p->value_begun && s.len && s.ptr[0] != '{'))
        return step_raw(p, s);
    p->value_begun = true;
    bool done = chat_feed_json(p);
    chat_emit_arguments(p, buf_slice(&p->json));
    if (done)
        chat_end_call(p);
    return done;
}

/* The rest is a name, or its head, and perhaps the head of the next marker. */
static bool may_be_name(const struct chat_parser *p, struct slice s)
{
    uint32_t ends = CHAT_MARK_BIT(CHAT_NAME_END) | CHAT_MARK_BIT(CHAT_ID_BEGIN);
    enum chat_marker found;
    if (p->opts.syntax->arguments == CHAT_TAGGED)
        ends |= CHAT_MARK_BIT(CHAT_KEY_BEGIN) | CHAT_MARK_BIT(CHAT_CALL_END);
    if (chat_find_mark(p, s, 0, ends, &found) != SIZE_MAX)
        return true;
    s = slice_trim(slice_sub(s, 0, s.len - chat_mark_tail(p, s, ends)), SLICE_BLANKS);
    for (size_t i = 0; i < s.len; i++)
        if (slice_is_blank(s.ptr[i]))
            return false;
    return s.len <= PLAIN_NAME_BYTES_MAX;
}

void chat_finish_name(struct chat_parser *p)
{
    if (p->cut && may_be_name(p, chat_rest(p)))
        return;
    not_a_name(p);
    chat_emit_rest(p, CHAT_CONTENT, chat_rest(p).len);
}

void chat_finish_json(struct chat_parser *p)
{
    buf_clear(&p->json);
    if (p->value_begun)
        json_stream_close(&p->stream, &p->json);
    else if (!p->value_streams)
        buf_puts(&p->json, "{}");
    chat_emit_arguments(p, buf_slice(&p->json));
}
