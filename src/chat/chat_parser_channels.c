/* chat_parser_channels.c - a reply of several messages, each with a header that says what it is: reasoning,
 * content, or a call. */
#include "chat/chat_parser_state.h"

#include "base/check.h"

#define HEADER_BYTES_MAX 1024

static bool may_begin_header(const struct chat_parser *p, struct slice s, bool *certain)
{
    static const enum chat_marker begins[] = {CHAT_SECTION_BEGIN, CHAT_CHANNEL_BEGIN, CHAT_NAME_END,
                                              CHAT_CALL_BEGIN};
    bool may = false;
    *certain = false;
    for (size_t i = 0; i < COUNT_OF(begins); i++) {
        *certain = *certain || chat_is_mark(p, s, begins[i]);
        may = may || chat_may_become(p, s, begins[i]);
    }
    return may || *certain;
}

static size_t word_bytes(struct slice s)
{
    size_t n = 0;
    while (n < s.len && !slice_is_blank(s.ptr[n]) && s.ptr[n] != '<' && s.ptr[n] != CHAT_SPECIAL_BYTE)
        n++;
    return n;
}

/* The word after `mark` in the header; empty: the header has no such word. */
static struct slice word_after(struct slice header, struct slice mark)
{
    size_t at = mark.len ? slice_find(header, mark, 0) : SIZE_MAX;
    if (at == SIZE_MAX)
        return (struct slice){0};
    struct slice s = slice_sub(header, at + mark.len, header.len);
    return slice_sub(s, 0, word_bytes(s));
}

static void begin_body(struct chat_parser *p, struct slice header)
{
    struct slice to = p->mark[CHAT_CALL_BEGIN], channel = word_after(header, p->mark[CHAT_CHANNEL_BEGIN]);
    struct slice name = word_after(header, to);
    if (!name.len) /* a recipient outside of the tools' name space */
        name = word_after(header, SLICE("to="));
    bool call = name.len && p->opts.parse_tools && !slice_eq(name, SLICE("user")) &&
                !slice_eq(name, SLICE("assistant"));
    p->body = slice_eq(channel, SLICE("analysis")) ? CHAT_REASONING : CHAT_CONTENT;
    p->state = call ? CHAT_AT_JSON : CHAT_AT_BODY;
    if (!call)
        return;
    buf_clear(&p->id);
    buf_clear(&p->name);
    buf_put_slice(&p->name, name);
    p->value_begun = p->value_streams = false;
    json_stream_restart(&p->stream);
    chat_begin_call(p);
}

/* The end of a header: NAME_END or, of a call without it, the arguments' brace. SIZE_MAX: not there. */
static size_t header_end(const struct chat_parser *p, struct slice s, enum chat_marker *found)
{
    size_t at = chat_find_mark(p, s, 0, CHAT_MARK_BIT(CHAT_NAME_END), found);
    const char *brace = s.len ? memchr(s.ptr, '{', MIN_OF(s.len, at)) : NULL;
    if (!brace ||
        slice_find(slice_sub(s, 0, (size_t)(brace - s.ptr)), p->mark[CHAT_CALL_BEGIN], 0) == SIZE_MAX)
        return at;
    *found = CHAT_MARKER_COUNT;
    return (size_t)(brace - s.ptr);
}

bool chat_step_header(struct chat_parser *p)
{
    bool certain;
    if (chat_skip_blanks(p))
        return false;
    struct slice s = chat_rest(p);
    if (!may_begin_header(p, s, &certain)) {
        p->body = CHAT_CONTENT;
        p->state = CHAT_AT_BODY;
        return true;
    }
    enum chat_marker found;
    size_t at = certain ? header_end(p, s, &found) : SIZE_MAX;
    if (at == SIZE_MAX && s.len < HEADER_BYTES_MAX + p->mark[CHAT_NAME_END].len)
        return false;
    if (at == SIZE_MAX || at > HEADER_BYTES_MAX) {
        /* Its first marker as well: the body would end there. */
        if (chat_is_mark(p, s, CHAT_SECTION_BEGIN))
            chat_emit_rest(p, CHAT_CONTENT, p->mark[CHAT_SECTION_BEGIN].len);
        p->body = CHAT_CONTENT;
        p->state = CHAT_AT_BODY;
        return true;
    }
    begin_body(p, slice_sub(s, 0, at));
    p->at += at + (found == CHAT_NAME_END ? p->mark[CHAT_NAME_END].len : 0); /* not counted as the call's */
    p->at_start = false;
    return true;
}

bool chat_step_body(struct chat_parser *p)
{
    ASSERT(p->body == CHAT_REASONING || p->body == CHAT_CONTENT);
    static const uint32_t ends = CHAT_MARK_BIT(CHAT_SECTION_END) | CHAT_MARK_BIT(CHAT_CALL_END) |
                                 CHAT_MARK_BIT(CHAT_TEXT_END) | CHAT_MARK_BIT(CHAT_SECTION_BEGIN);
    struct slice s = chat_rest(p);
    enum chat_marker found;
    size_t at = chat_find_mark(p, s, 0, ends, &found);
    if (at == SIZE_MAX) {
        chat_emit_rest(p, p->body, s.len - chat_held_tail(p, s, ends));
        return false;
    }
    chat_emit_rest(p, p->body, at);
    chat_consume(p, found == CHAT_SECTION_BEGIN ? 0 : p->mark[found].len);
    p->state = CHAT_AT_HEADER;
    return true;
}
