/* chat_parser_base.c - what every step of the parser of replies shares: markers, input, events. */
#include "chat/chat_parser_state.h"

#include "base/check.h"

#include <errno.h>

#define CUT_HEAD_BYTES_MIN 3

/* ---- markers ---- */

static void put_marker(struct chat_parser *p, struct slice s)
{
    while (s.len) {
        uint32_t special = p->opts.by_token ? chat_syntax_special_at(p->opts.syntax, s) : UINT32_MAX;
        ASSERT(special == UINT32_MAX || special < CHAT_SPECIALS_MAX);
        size_t n = special == UINT32_MAX ? 1 : p->opts.syntax->specials[special].text.len;
        if (special == UINT32_MAX)
            buf_putc(&p->marks, s.ptr[0]);
        else
            buf_put(&p->marks, (char[]){CHAT_SPECIAL_BYTE, (char)(0x80 + special)}, 2);
        s = slice_sub(s, n, s.len);
    }
}

int chat_make_marks(struct chat_parser *p)
{
    size_t from[CHAT_MARKER_COUNT + 2];
    for (uint32_t m = 0; m < CHAT_MARKER_COUNT; m++) {
        from[m] = p->marks.len;
        put_marker(p, chat_syntax_bare(p->opts.syntax->marker[m]));
    }
    from[CHAT_MARKER_COUNT] = p->marks.len;
    put_marker(p, chat_syntax_bare(p->opts.syntax->opens));
    from[CHAT_MARKER_COUNT + 1] = p->marks.len;
    ASSERT(from[CHAT_MARKER_COUNT] <= p->marks.len);
    for (uint32_t m = 0; m < CHAT_MARKER_COUNT; m++)
        p->mark[m] = slice_sub(buf_slice(&p->marks), from[m], from[m + 1] - from[m]);
    p->opens = slice_sub(buf_slice(&p->marks), from[CHAT_MARKER_COUNT], p->marks.len);
    if (p->opts.syntax->arguments == CHAT_TAGGED && slice_eq(p->mark[CHAT_VALUE_BEGIN], SLICE("\n")))
        p->mark[CHAT_VALUE_BEGIN].len = 0;
    if (p->opts.syntax->arguments == CHAT_TAGGED && slice_eq(p->mark[CHAT_NAME_END], SLICE("\n")))
        p->mark[CHAT_NAME_END].len = 0; /* the first key ends the name as well */
    return p->marks.error;
}

bool chat_is_mark(const struct chat_parser *p, struct slice text, enum chat_marker m)
{
    ASSERT((unsigned)m < CHAT_MARKER_COUNT);
    return p->mark[m].len > 0 && slice_starts(text, p->mark[m]);
}

bool chat_may_become(const struct chat_parser *p, struct slice text, enum chat_marker m)
{
    bool more = !p->over || p->cut;
    ASSERT((unsigned)m < CHAT_MARKER_COUNT);
    return more && text.len < p->mark[m].len && slice_starts(p->mark[m], text);
}

size_t chat_find_mark(const struct chat_parser *p, struct slice text, size_t from, uint32_t marks,
                      enum chat_marker *ret)
{
    bool begins[256] = {false};
    for (uint32_t m = 0; m < CHAT_MARKER_COUNT; m++)
        if ((marks & CHAT_MARK_BIT(m)) && p->mark[m].len)
            begins[(unsigned char)p->mark[m].ptr[0]] = true;
    for (size_t i = from; i < text.len; i++) {
        if (!begins[(unsigned char)text.ptr[i]])
            continue;
        for (uint32_t m = 0; m < CHAT_MARKER_COUNT; m++)
            if ((marks & CHAT_MARK_BIT(m)) && chat_is_mark(p, slice_sub(text, i, text.len), m)) {
                *ret = m;
                return i;
            }
    }
    return SIZE_MAX;
}

size_t chat_await_mark(struct chat_parser *p, uint32_t marks, enum chat_marker *ret)
{
    struct slice s = chat_rest(p);
    size_t at = chat_find_mark(p, s, p->scanned, marks, ret);
    if (at == SIZE_MAX)
        p->scanned = s.len - chat_mark_tail(p, s, marks);
    ASSERT(at == SIZE_MAX || at < s.len);
    return at;
}

/* Length of the longest tail of `s` that is a proper head of `marker`. */
static size_t tail_of(struct slice s, struct slice marker)
{
    for (size_t n = marker.len ? MIN_OF(s.len, marker.len - 1) : 0; n > 0; n--)
        if (memcmp(s.ptr + s.len - n, marker.ptr, n) == 0)
            return n;
    return 0;
}

size_t chat_mark_tail(const struct chat_parser *p, struct slice text, uint32_t marks)
{
    size_t held = 0;
    for (uint32_t m = 0; m < CHAT_MARKER_COUNT; m++)
        if (marks & CHAT_MARK_BIT(m))
            held = MAX_OF(held, tail_of(text, p->mark[m]));
    ASSERT(held <= text.len);
    return held;
}

static bool is_word(struct slice s)
{
    for (size_t i = 0; i < s.len; i++)
        if (((s.ptr[i] | 32) < 'a' || (s.ptr[i] | 32) > 'z') && s.ptr[i] != ' ')
            return false;
    return true;
}

/* Within running text "<" is a character, and a head that reads as words is words. */
static size_t cut_head(const struct chat_parser *p, struct slice text, struct slice marker)
{
    size_t n = tail_of(text, marker);
    ASSERT(n <= text.len && n <= marker.len);
    bool text_before = n < text.len || (!p->at_start && !p->after_call);
    bool shows = n >= CUT_HEAD_BYTES_MIN && !is_word(slice_sub(marker, 0, n));
    return text_before && !shows ? 0 : n;
}

size_t chat_held_tail(const struct chat_parser *p, struct slice text, uint32_t marks)
{
    size_t held = 0;
    if (!p->over)
        return chat_mark_tail(p, text, marks);
    for (uint32_t m = 0; m < CHAT_MARKER_COUNT && p->cut; m++)
        if (marks & CHAT_MARK_BIT(m))
            held = MAX_OF(held, cut_head(p, text, p->mark[m]));
    return held;
}

/* ---- input ---- */

struct slice chat_rest(const struct chat_parser *p)
{
    ASSERT(p->at <= p->pending.len);
    return slice_sub(buf_slice(&p->pending), p->at, p->pending.len);
}

void chat_consume(struct chat_parser *p, size_t bytes)
{
    ASSERT(bytes <= p->pending.len - p->at);
    p->at += bytes;
    if (bytes > 0)
        p->scanned = p->id_scanned = 0;
    if (!p->in_call)
        return;
    p->call_bytes += bytes;
    if (p->call_bytes > p->opts.bytes_max && !p->error)
        p->error = -E2BIG;
}

bool chat_skip_blanks(struct chat_parser *p)
{
    struct slice s = chat_rest(p);
    size_t n = 0;
    while (n < s.len && slice_is_blank(s.ptr[n]))
        n++;
    chat_consume(p, n);
    return n == s.len;
}

bool chat_skip_to_text(struct chat_parser *p)
{
    if (!p->keep_indent)
        return chat_skip_blanks(p);
    struct slice s = chat_rest(p);
    size_t n = 0;
    while (n < s.len &&
           (s.ptr[n] == '\n' || s.ptr[n] == '\r' || (!p->line_ended && slice_is_blank(s.ptr[n]))))
        p->line_ended |= s.ptr[n++] == '\n';
    chat_consume(p, n);
    return n == s.len;
}

size_t chat_without_blank_tail(struct slice s)
{
    size_t least = s.len > CHAT_BLANKS_MAX ? s.len - CHAT_BLANKS_MAX : 0;
    while (s.len > least && slice_is_blank(s.ptr[s.len - 1]))
        s.len--;
    return s.len;
}

/* ---- events ---- */

/* The text of special tokens; in a JSON string as its content. */
static void put_special(const struct chat_parser *p, char code, bool in_json, struct buf *ret)
{
    uint32_t index = (uint32_t)((unsigned char)code - 0x80);
    if (index >= p->opts.syntax->special_count ||
        (p->opts.hide_special && p->opts.syntax->specials[index].hidden))
        return;
    struct slice text = p->opts.syntax->specials[index].text;
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.ptr[i];
        if (in_json && c < ' ') {
            buf_printf(ret, "\\u%04x", c);
            continue;
        }
        if (in_json && (c == '"' || c == '\\'))
            buf_putc(ret, '\\');
        buf_putc(ret, (char)c);
    }
}

static void put_expanded(const struct chat_parser *p, struct slice s, bool in_json, struct buf *ret)
{
    size_t from = 0;
    for (size_t i = 0; i + 1 < s.len; i++) {
        if (s.ptr[i] != CHAT_SPECIAL_BYTE)
            continue;
        buf_put(ret, s.ptr + from, i - from);
        put_special(p, s.ptr[i + 1], in_json, ret);
        from = i + 2;
        i++;
    }
    if (from < s.len)
        buf_put(ret, s.ptr + from, s.len - from);
}

void chat_put_text(const struct chat_parser *p, struct slice s, struct buf *ret)
{
    put_expanded(p, s, false, ret);
}

static bool has_special(struct slice s)
{
    return s.len && memchr(s.ptr, CHAT_SPECIAL_BYTE, s.len);
}

int chat_parser_error(const struct chat_parser *p)
{
    const struct buf *bufs[] = {&p->pending,     &p->name,         &p->id,          &p->key,
                                &p->json,        &p->shown,        &p->object.raw,  &p->object.early,
                                &p->stream.held, &p->literal.held, &p->literal.word};
    for (size_t i = 0; i < COUNT_OF(bufs) && !p->error; i++)
        if (bufs[i]->error)
            return bufs[i]->error;
    return p->error;
}

/* Nothing follows a failure: an event would lack bytes. A model may write an empty name. */
static void say_event(struct chat_parser *p, struct chat_event event)
{
    ASSERT(event.kind == CHAT_REASONING || event.kind == CHAT_CONTENT || p->calls > 0);
    event.index = event.kind == CHAT_REASONING || event.kind == CHAT_CONTENT ? 0 : p->calls - 1;
    if (event.kind == CHAT_TOOL_BEGIN)
        event.id = buf_slice(&p->id);
    bool of_call = event.kind == CHAT_TOOL_BEGIN || event.kind == CHAT_TOOL_END;
    if ((event.text.len > 0 || of_call) && !chat_parser_error(p))
        p->opts.sink(p->opts.sink_arg, &event);
}

static void say(struct chat_parser *p, enum chat_event_kind kind, struct slice text)
{
    say_event(p, (struct chat_event){.kind = kind, .text = text});
}

void chat_emit(struct chat_parser *p, enum chat_event_kind kind, struct slice text)
{
    if (!has_special(text)) {
        say(p, kind, text);
        return;
    }
    buf_clear(&p->shown);
    put_expanded(p, text, false, &p->shown);
    say(p, kind, buf_slice(&p->shown));
}

void chat_emit_rest(struct chat_parser *p, enum chat_event_kind kind, size_t bytes)
{
    ASSERT(bytes <= chat_rest(p).len);
    if (bytes == 0)
        return;
    chat_emit(p, kind, slice_sub(chat_rest(p), 0, bytes));
    p->at_start = p->after_call = false;
    chat_consume(p, bytes);
}

void chat_emit_arguments(struct chat_parser *p, struct slice text)
{
    if (has_special(text)) {
        buf_clear(&p->shown);
        put_expanded(p, text, true, &p->shown);
        text = buf_slice(&p->shown);
    }
    while (text.len) {
        size_t n = MIN_OF(text.len, (size_t)CHAT_PIECE_BYTES_MAX);
        while (n < text.len && n > 1 && ((unsigned char)text.ptr[n] & 0xc0) == 0x80)
            n--;
        ASSERT(n > 0);
        say(p, CHAT_TOOL_ARGUMENTS, slice_sub(text, 0, n));
        text = slice_sub(text, n, text.len);
    }
}

bool chat_is_offered(const struct chat_parser *p, struct slice name, bool head)
{
    size_t i;
    json_t *tool;
    json_array_foreach(p->opts.tools, i, tool) {
        const json_t *f = json_object_get(tool, "function");
        const char *offered = json_string_value(json_object_get(f ? f : tool, "name"));
        if (offered && (head ? slice_starts(slice_of(offered), name) : slice_eq(name, slice_of(offered))))
            return true;
    }
    return false;
}

void chat_begin_call(struct chat_parser *p)
{
    ASSERT(!p->in_call);
    p->calls++;
    p->section_calls++;
    p->parameters = 0;
    p->in_call = true;
    p->call_bytes = 0;
    chat_emit(p, CHAT_TOOL_BEGIN, buf_slice(&p->name));
}

static void end_call(struct chat_parser *p, bool cut)
{
    ASSERT(p->in_call);
    say_event(p, (struct chat_event){.kind = CHAT_TOOL_END, .cut = cut});
    p->in_call = false;
    p->at_start = false;
    p->after_call = true;
    p->state = CHAT_AT_AFTER;
}

void chat_end_call(struct chat_parser *p)
{
    end_call(p, false);
}

void chat_cut_call(struct chat_parser *p)
{
    ASSERT(p->over && p->cut);
    end_call(p, true);
}

void chat_to_text(struct chat_parser *p)
{
    ASSERT(!p->in_call);
    p->state = CHAT_AT_TEXT;
    p->in_section = false;
    p->skip_blank = true;
    p->keep_indent = false;
}

/* ---- JSON ---- */

bool chat_feed_json(struct chat_parser *p)
{
    buf_clear(&p->json);
    for (;;) {
        struct slice s = chat_rest(p);
        bool broken = p->stream.broken;
        enum chat_marker found;
        size_t end = broken ? chat_find_mark(p, s, 0, CHAT_CALL_MARKS, &found) : SIZE_MAX;
        if (end != SIZE_MAX)
            s.len = end;
        else if (broken && !p->over)
            s.len -= chat_mark_tail(p, s, CHAT_CALL_MARKS);
        chat_consume(p, json_stream_feed(&p->stream, s, &p->json));
        if (end != SIZE_MAX && !p->stream.done)
            json_stream_close(&p->stream, &p->json);
        if (p->stream.done || broken == p->stream.broken)
            return p->stream.done;
    }
}
