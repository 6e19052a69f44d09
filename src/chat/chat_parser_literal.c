/* chat_parser_literal.c - calls in Python's notation, and arguments in braces; chat_literal.c turns them into
 * JSON.
 *
 * A list at the start of a reply is text until the first name and its bracket have been read. */
#include "chat/chat_parser_state.h"

#include "base/check.h"

#define NAME_BYTES_MAX 128

void chat_literal_start(struct chat_parser *p, bool bare)
{
    p->list_state = CHAT_LIST_BEGIN;
    p->in_list = false;
    p->bare = bare;
    p->state = CHAT_AT_LITERAL;
}

/* In a section: on to its end. */
static bool leave(struct chat_parser *p)
{
    p->bare = false;
    p->at_start = false;
    p->state = CHAT_AT_AFTER;
    return true;
}

static bool to_content(struct chat_parser *p)
{
    if (p->bare && p->in_list)
        chat_emit(p, CHAT_CONTENT, SLICE("["));
    p->bare = p->at_start = p->skip_blank = false;
    p->state = CHAT_AT_TEXT;
    return true;
}

static bool is_name_byte(char c, bool first)
{
    bool letter = (c | 32) >= 'a' && (c | 32) <= 'z';
    return letter || c == '_' || (!first && ((c >= '0' && c <= '9') || c == '.' || c == '-'));
}

/* No name is there: skips the word, or the character. */
static bool skip_word(struct chat_parser *p, struct slice s, size_t bytes)
{
    size_t n = MAX_OF(bytes, (size_t)1);
    while (bytes == 0 && n < s.len && ((unsigned char)s.ptr[n] & 0xc0) == 0x80)
        n++;
    if (p->section_calls == 0)
        chat_emit_rest(p, CHAT_CONTENT, n);
    else
        chat_consume(p, n);
    return leave(p);
}

static bool step_name(struct chat_parser *p)
{
    if (p->in_list && !p->bare && chat_skip_blanks(p))
        return false;
    struct slice s = chat_rest(p);
    size_t n = 0;
    while (n < s.len && n <= NAME_BYTES_MAX && is_name_byte(s.ptr[n], n == 0))
        n++;
    if (n == s.len && n <= NAME_BYTES_MAX)
        return false;
    if (chat_may_become(p, s, CHAT_SECTION_END))
        return false;
    if (chat_is_mark(p, s, CHAT_SECTION_END))
        return leave(p);
    if (n == 0 || n > NAME_BYTES_MAX || s.ptr[n] != '(')
        return p->bare ? to_content(p) : skip_word(p, s, n);
    buf_clear(&p->id);
    buf_clear(&p->name);
    buf_put_slice(&p->name, slice_sub(s, 0, n));
    chat_consume(p, n + 1);
    p->bare = false;
    chat_begin_call(p);
    chat_emit_arguments(p, SLICE("{"));
    chat_literal_restart(&p->literal);
    p->list_state = CHAT_LIST_ARGUMENTS;
    return true;
}

/* The call is over, and perhaps another one follows it in the list. */
static void end_literal(struct chat_parser *p)
{
    chat_end_call(p);
    if (p->in_list && p->opts.syntax->arguments == CHAT_PYTHON) {
        p->list_state = CHAT_LIST_NEXT;
        p->state = CHAT_AT_LITERAL;
    }
}

static bool step_arguments(struct chat_parser *p)
{
    buf_clear(&p->json);
    chat_consume(p, chat_literal_feed(&p->literal, chat_rest(p), &p->json));
    bool broken = p->literal.broken;
    if (broken)
        chat_literal_close(&p->literal, &p->json);
    chat_emit_arguments(p, buf_slice(&p->json));
    if (!p->literal.done)
        return false;
    if (broken)
        p->in_list = false;
    end_literal(p);
    return true;
}

static bool step_next(struct chat_parser *p)
{
    if (chat_skip_blanks(p))
        return false;
    ASSERT(chat_rest(p).len > 0);
    char c = chat_rest(p).ptr[0];
    if (c == ',') {
        chat_consume(p, 1);
        return true;
    }
    if (c == ']') {
        chat_consume(p, 1);
        p->in_list = false;
        return leave(p);
    }
    if (!is_name_byte(c, true))
        return leave(p);
    p->list_state = CHAT_LIST_NAME;
    return true;
}

bool chat_step_literal(struct chat_parser *p)
{
    switch (p->list_state) {
    case CHAT_LIST_BEGIN:
        if (chat_skip_blanks(p))
            return false;
        p->in_list = chat_rest(p).ptr[0] == '[';
        chat_consume(p, p->in_list);
        p->list_state = CHAT_LIST_NAME;
        return true;
    case CHAT_LIST_NAME:
        return step_name(p);
    case CHAT_LIST_ARGUMENTS:
        return step_arguments(p);
    case CHAT_LIST_NEXT:
        return step_next(p);
    }
    return false;
}

void chat_finish_literal(struct chat_parser *p)
{
    if (!p->in_call) {
        if (p->bare && !(p->cut && chat_is_offered(p, chat_rest(p), true))) {
            to_content(p);
            chat_emit(p, CHAT_CONTENT, chat_rest(p));
        }
        return;
    }
    if (p->cut) {
        chat_cut_call(p);
        return;
    }
    buf_clear(&p->json);
    chat_literal_close(&p->literal, &p->json);
    chat_emit_arguments(p, buf_slice(&p->json));
    chat_end_call(p);
}
