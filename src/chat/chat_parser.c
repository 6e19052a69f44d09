/* chat_parser.c - running text, reasoning and sections, and which step follows which. */
#include "chat/chat_parser_state.h"

#include "base/check.h"

#include <errno.h>
#include <stdlib.h>

#define IDLE_STEPS_MAX 64

/* ---- running text ---- */

/* The state after a call. */
static void to_section(struct chat_parser *p)
{
    if (p->opts.syntax->shape == CHAT_CHANNELS)
        p->state = CHAT_AT_HEADER;
    else if (p->in_section)
        p->state = CHAT_AT_SECTION;
    else
        chat_to_text(p);
}

static bool step_reasoning(struct chat_parser *p)
{
    if (p->skip_blank && chat_skip_blanks(p))
        return false;
    struct slice s = chat_rest(p);
    if (p->at_start && chat_is_mark(p, s, CHAT_REASONING_OPEN)) {
        chat_consume(p, p->mark[CHAT_REASONING_OPEN].len);
        p->at_start = false;
        return true;
    }
    if (p->at_start && chat_may_become(p, s, CHAT_REASONING_OPEN))
        return false;
    p->skip_blank = false;
    enum chat_marker found;
    uint32_t marks = CHAT_MARK_BIT(CHAT_REASONING_CLOSE);
    bool all = p->opts.syntax->reasoning_in_content;
    size_t at = chat_find_mark(p, s, 0, marks, &found);
    if (at == SIZE_MAX) {
        s.len -= chat_held_tail(p, s, marks);
        chat_emit_rest(p, CHAT_REASONING, all ? s.len : chat_without_blank_tail(s));
        return false;
    }
    size_t end = all ? at : chat_without_blank_tail(slice_sub(s, 0, at));
    ASSERT(end <= at && at < s.len);
    chat_emit_rest(p, CHAT_REASONING, end);
    chat_consume(p, at - end + p->mark[CHAT_REASONING_CLOSE].len);
    p->state = CHAT_AT_TEXT;
    p->at_start = false;
    p->skip_blank = !all;
    p->only_blank = all;
    /* A template writes line ends there: what indents the text is the model's, and comes back with it. */
    p->keep_indent = p->mark[CHAT_TEXT_BEGIN].len == 0;
    p->line_ended = false;
    return true;
}

static uint32_t text_marks(const struct chat_parser *p)
{
    uint32_t marks = CHAT_MARK_BIT(CHAT_TEXT_BEGIN) | CHAT_MARK_BIT(CHAT_TEXT_END);
    struct slice open = p->mark[CHAT_REASONING_OPEN];
    if (p->opts.parse_tools)
        marks |= CHAT_MARK_BIT(CHAT_SECTION_BEGIN) | CHAT_MARK_BIT(CHAT_CALL_BEGIN);
    /* A special token is never the model's text, wherever it stands. */
    if (open.len && open.ptr[0] == CHAT_SPECIAL_BYTE)
        marks |= CHAT_MARK_BIT(CHAT_REASONING_OPEN);
    return marks;
}

static void to_reasoning(struct chat_parser *p)
{
    p->state = CHAT_AT_REASONING;
    p->at_start = false;
    p->skip_blank = !p->opts.syntax->reasoning_in_content;
}

static void begin_section(struct chat_parser *p)
{
    struct slice begin = p->mark[CHAT_SECTION_BEGIN];
    p->in_section = true;
    p->section_calls = 0;
    p->section_lists = begin.len && begin.ptr[begin.len - 1] == '[' && p->opts.syntax->list;
    p->state = CHAT_AT_SECTION;
    p->at_start = false;
}

static bool all_blank(struct slice s)
{
    while (s.len && slice_is_blank(s.ptr[s.len - 1]))
        s.len--;
    return s.len == 0;
}

static void take_text_mark(struct chat_parser *p, size_t at, enum chat_marker found)
{
    ASSERT(p->mark[found].len > 0);
    struct slice before = slice_sub(chat_rest(p), 0, at);
    bool tool = found == CHAT_SECTION_BEGIN || found == CHAT_CALL_BEGIN;
    bool cut = (found != CHAT_TEXT_BEGIN && found != CHAT_TEXT_END) || (p->only_blank && all_blank(before));
    size_t end = cut ? chat_without_blank_tail(before) : at;
    ASSERT(end <= at);
    chat_emit_rest(p, CHAT_CONTENT, end);
    /* The white space is content after all when the marker turns out to be none. */
    buf_clear(&p->key);
    buf_put_slice(&p->key, slice_sub(chat_rest(p), 0, at - end));
    chat_consume(p, at - end + p->mark[found].len);
    p->skip_blank = tool ? false : found == CHAT_TEXT_END;
    p->keep_indent = p->only_blank = false;
    if (found == CHAT_REASONING_OPEN)
        to_reasoning(p);
    else if (found == CHAT_SECTION_BEGIN)
        begin_section(p);
    else if (found == CHAT_CALL_BEGIN)
        p->state = CHAT_AT_NAME;
}

/* A call may begin the reply without a marker. True: it may, and the state has changed. */
static bool try_bare(struct chat_parser *p, struct slice head)
{
    const struct chat_syntax *s = p->opts.syntax;
    if (!s->bare || !p->opts.parse_tools || !p->at_start || !head.len)
        return false;
    bool lists = s->list || s->arguments == CHAT_PYTHON;
    if (head.ptr[0] != '[' && (head.ptr[0] != '{' || s->arguments == CHAT_PYTHON))
        return false;
    if (head.ptr[0] == '[' && !lists)
        return false;
    p->in_section = false;
    if (s->arguments == CHAT_PYTHON)
        chat_literal_start(p, true);
    else
        chat_object_start(p, false, true);
    return true;
}

/* The end of a call once more, unless a section may begin so. False: not here; *wait: it may come. */
static bool skip_second_end(struct chat_parser *p, struct slice s, bool *wait)
{
    static const enum chat_marker ends[] = {CHAT_CALL_END, CHAT_SECTION_END};
    for (size_t i = 0; p->after_call && s.len && i < COUNT_OF(ends); i++) {
        if (slice_starts(p->mark[CHAT_SECTION_BEGIN], p->mark[ends[i]]))
            continue;
        if (chat_is_mark(p, s, ends[i])) {
            chat_consume(p, p->mark[ends[i]].len);
            return true;
        }
        *wait = *wait || chat_may_become(p, s, ends[i]);
    }
    return false;
}

static bool step_text(struct chat_parser *p)
{
    if (p->skip_blank && chat_skip_to_text(p))
        return false;
    struct slice s = chat_rest(p), head = s;
    bool wait = false;
    if (skip_second_end(p, s, &wait) || wait)
        return !wait;
    while (head.len && slice_is_blank(head.ptr[0]))
        head = slice_sub(head, 1, head.len);
    /* More white space would be emitted in pieces, and held in one. */
    if (s.len - head.len > CHAT_BLANKS_MAX)
        p->at_start = false;
    if (p->at_start && chat_is_mark(p, head, CHAT_REASONING_OPEN)) {
        chat_consume(p, s.len - head.len + p->mark[CHAT_REASONING_OPEN].len);
        to_reasoning(p);
        return true;
    }
    if (p->at_start && chat_may_become(p, head, CHAT_REASONING_OPEN))
        return false;
    if (try_bare(p, head))
        return true;
    enum chat_marker found;
    uint32_t marks = text_marks(p);
    size_t at = chat_find_mark(p, s, 0, marks, &found);
    if (at != SIZE_MAX) {
        take_text_mark(p, at, found);
        return true;
    }
    if (p->at_start)
        marks |= CHAT_MARK_BIT(CHAT_REASONING_OPEN);
    size_t end = s.len - chat_held_tail(p, s, marks);
    p->only_blank = p->only_blank && all_blank(slice_sub(s, 0, end));
    if (p->only_blank || (p->opts.parse_tools && !p->over))
        end = chat_without_blank_tail(slice_sub(s, 0, end));
    p->skip_blank = p->skip_blank && end == 0;
    ASSERT(end <= s.len);
    chat_emit_rest(p, CHAT_CONTENT, end);
    return false;
}

/* ---- sections ---- */

/* Text that is neither a call nor the end: content when no call follows, as a model writes that only
 * mentions a marker; dropped between calls. */
static bool step_stray(struct chat_parser *p, struct slice s)
{
    ASSERT(s.len > 0);
    enum chat_marker found = CHAT_SECTION_END;
    uint32_t calls = CHAT_MARK_BIT(CHAT_CALL_BEGIN), ends = CHAT_MARK_BIT(CHAT_SECTION_END);
    if (!p->mark[CHAT_SECTION_END].len) {
        if (p->section_calls == 0)
            chat_emit(p, CHAT_CONTENT, p->mark[CHAT_SECTION_BEGIN]);
        chat_to_text(p);
        p->skip_blank = p->section_calls > 0;
        return true;
    }
    bool objects = p->opts.syntax->arguments == CHAT_JSON_CALL;
    size_t from = p->scanned, at = chat_await_mark(p, objects ? ends : calls | ends, &found);
    for (size_t i = from; objects && i < MIN_OF(s.len, at); i++)
        if (s.ptr[i] == '{' || s.ptr[i] == '[') {
            found = CHAT_CALL_BEGIN;
            at = i;
        }
    if (at == SIZE_MAX) {
        bool head = chat_mark_tail(p, s, calls | ends) == s.len;
        s.len -= chat_held_tail(p, s, ends);
        if (p->over && p->section_calls == 0 && !head)
            chat_emit_rest(p, CHAT_CONTENT, chat_without_blank_tail(s));
        return false;
    }
    if (found == CHAT_SECTION_END && p->section_calls == 0)
        chat_emit_rest(p, CHAT_CONTENT, chat_without_blank_tail(slice_sub(s, 0, at)));
    else
        chat_consume(p, at);
    return true;
}

static bool begins_call(struct chat_parser *p, struct slice s)
{
    ASSERT(s.len > 0);
    const struct chat_syntax *syntax = p->opts.syntax;
    if (syntax->arguments == CHAT_JSON_CALL) {
        if (s.ptr[0] != '{' && s.ptr[0] != '[')
            return false;
        chat_object_start(p, p->section_lists, false);
        return true;
    }
    if (syntax->arguments == CHAT_PYTHON) {
        bool letter = (s.ptr[0] | 32) >= 'a' && (s.ptr[0] | 32) <= 'z';
        if (s.ptr[0] != '[' && s.ptr[0] != '_' && !letter)
            return false;
        chat_literal_start(p, false);
        return true;
    }
    if (!chat_is_mark(p, s, CHAT_CALL_BEGIN))
        return false;
    chat_consume(p, p->mark[CHAT_CALL_BEGIN].len);
    p->state = CHAT_AT_NAME;
    return true;
}

static bool step_section(struct chat_parser *p)
{
    if (chat_skip_blanks(p))
        return false;
    struct slice s = chat_rest(p);
    if (chat_is_mark(p, s, CHAT_SECTION_END)) {
        chat_consume(p, p->mark[CHAT_SECTION_END].len);
        chat_to_text(p);
        return true;
    }
    if (begins_call(p, s))
        return true;
    /* A second section where the first was not closed. */
    if (chat_is_mark(p, s, CHAT_SECTION_BEGIN)) {
        chat_consume(p, p->mark[CHAT_SECTION_BEGIN].len);
        return true;
    }
    if (chat_may_become(p, s, CHAT_SECTION_END) || chat_may_become(p, s, CHAT_CALL_BEGIN) ||
        chat_may_become(p, s, CHAT_SECTION_BEGIN))
        return false;
    return step_stray(p, s);
}

/* A call without a section may still be followed by the end of one. */
static bool step_after(struct chat_parser *p)
{
    static const enum chat_marker ends[] = {CHAT_CALL_END, CHAT_SECTION_END};
    if (chat_skip_blanks(p) && !p->over)
        return false;
    struct slice s = chat_rest(p);
    bool inside = p->in_section;
    if (p->opts.syntax->bare && p->opts.syntax->arguments == CHAT_JSON_CALL && s.len) {
        if (s.ptr[0] == ';') {
            chat_consume(p, 1);
            return true;
        }
        if (s.ptr[0] == '{' && !inside) {
            chat_object_start(p, false, true);
            return true;
        }
    }
    for (uint32_t i = 0; i < (inside ? 1 : COUNT_OF(ends)); i++) {
        if (chat_is_mark(p, s, ends[i])) {
            chat_consume(p, p->mark[ends[i]].len);
            if (i == 0 && !inside && p->mark[CHAT_SECTION_END].len)
                return true;
            break;
        }
        if (chat_may_become(p, s, ends[i]))
            return false;
    }
    to_section(p);
    return true;
}

/* ---- the parser ---- */

static bool step(struct chat_parser *p)
{
    switch (p->state) {
    case CHAT_AT_TEXT:
        return step_text(p);
    case CHAT_AT_REASONING:
        return step_reasoning(p);
    case CHAT_AT_SECTION:
        return step_section(p);
    case CHAT_AT_NAME:
        return chat_step_name(p);
    case CHAT_AT_JSON:
        return chat_step_json(p);
    case CHAT_AT_KEYS:
        return chat_step_keys(p);
    case CHAT_AT_KEY:
        return chat_step_key(p);
    case CHAT_AT_VALUE_BEGIN:
        return chat_step_value_begin(p);
    case CHAT_AT_VALUE:
        return chat_step_value(p);
    case CHAT_AT_OBJECT:
        return chat_step_object(p);
    case CHAT_AT_LITERAL:
        return chat_step_literal(p);
    case CHAT_AT_AFTER:
        return step_after(p);
    case CHAT_AT_HEADER:
        return chat_step_header(p);
    case CHAT_AT_BODY:
        return chat_step_body(p);
    }
    return false;
}

static void init_bufs(struct chat_parser *p)
{
    const struct charge *charge = p->opts.charge;
    size_t max = p->opts.bytes_max;
    struct buf *bufs[] = {&p->name, &p->id, &p->key, &p->json, &p->object.raw, &p->object.early};
    for (size_t i = 0; i < COUNT_OF(bufs); i++)
        buf_init(bufs[i], max, charge);
    /* A special token of two bytes may stand for a longer text. */
    buf_init(&p->shown, SIZE_MAX / 4, charge);
    buf_init(&p->marks, (CHAT_MARKER_COUNT + 1) * CHAT_MARKER_BYTES_MAX, charge);
    buf_init(&p->pending, max, charge);
    json_stream_init(&p->stream, max, charge);
}

static int start(struct chat_parser *p)
{
    const struct chat_syntax *s = p->opts.syntax;
    int r = chat_make_marks(p);
    if (r < 0)
        return r;
    chat_literal_init(&p->literal, s->arguments == CHAT_BRACED ? CHAT_LITERAL_BRACED : CHAT_LITERAL_PYTHON,
                      p->mark[CHAT_QUOTE], p->opts.bytes_max, p->opts.charge);
    p->at_start = true;
    if (s->shape == CHAT_CHANNELS) {
        p->state = CHAT_AT_HEADER;
    } else if (p->opts.in_reasoning && p->mark[CHAT_REASONING_CLOSE].len) {
        to_reasoning(p);
        p->at_start = true;
    } else {
        buf_put_slice(&p->pending, p->opens);
    }
    return p->pending.error;
}

int chat_parser_create(const struct chat_parser_opts *opts, struct chat_parser **ret)
{
    int r = charge_take(opts->charge, sizeof(struct chat_parser));
    if (r < 0)
        return r;
    struct chat_parser *p = calloc(1, sizeof(*p));
    if (!p) {
        charge_give(opts->charge, sizeof(*p));
        return -ENOMEM;
    }
    p->opts = *opts;
    if (opts->charge) {
        p->charge = *opts->charge;
        p->opts.charge = &p->charge;
    }
    init_bufs(p);
    r = start(p);
    if (r < 0)
        chat_parser_free(p);
    else
        *ret = p;
    return r;
}

void chat_parser_free(struct chat_parser *p)
{
    if (!p)
        return;
    struct buf *bufs[] = {&p->pending, &p->marks, &p->name,       &p->id,          &p->key,
                          &p->json,    &p->shown, &p->object.raw, &p->object.early};
    for (size_t i = 0; i < COUNT_OF(bufs); i++)
        buf_done(bufs[i]);
    json_stream_done(&p->stream);
    chat_literal_done(&p->literal);
    struct charge charge = p->charge;
    bool charged = p->opts.charge != NULL;
    free(p);
    if (charged)
        charge_give(&charge, sizeof(*p));
}

bool chat_parser_reasons(const struct chat_parser *p)
{
    return p->state == CHAT_AT_REASONING || (p->state == CHAT_AT_BODY && p->body == CHAT_REASONING);
}

uint32_t chat_parser_calls(const struct chat_parser *p)
{
    return p->calls;
}

/* Steps that change the state without reading are few; a circle of them would be a fault of this parser,
 * and ends the reply, not the server. */
static int advance(struct chat_parser *p)
{
    uint32_t idle = 0;
    size_t at = p->at;
    while (!chat_parser_error(p) && step(p)) {
        p->scanned = p->id_scanned = 0;
        idle = p->at == at ? idle + 1 : 0;
        at = p->at;
        if (idle > IDLE_STEPS_MAX)
            p->error = -EPROTO;
    }
    ASSERT(p->at <= p->pending.len);
    buf_consume(&p->pending, p->at);
    p->at = 0;
    return chat_parser_error(p);
}

int chat_parser_push(struct chat_parser *p, struct slice text)
{
    if (p->opts.syntax->shape == CHAT_CONTENT_ONLY && !p->mark[CHAT_REASONING_CLOSE].len) {
        chat_emit(p, CHAT_CONTENT, text);
        return 0;
    }
    buf_put_slice(&p->pending, text);
    return advance(p);
}

int chat_parser_push_special(struct chat_parser *p, uint32_t index)
{
    ASSERT(p->opts.by_token && index < p->opts.syntax->special_count);
    return chat_parser_push(p, (struct slice){(char[]){CHAT_SPECIAL_BYTE, (char)(0x80 + index)}, 2});
}

/* The call that the output ends in. */
static void finish_call(struct chat_parser *p)
{
    ASSERT(p->in_call);
    if (p->cut) {
        chat_cut_call(p);
        return;
    }
    switch (p->opts.syntax->arguments) {
    case CHAT_JSON:
        chat_finish_json(p);
        break;
    case CHAT_TAGGED:
        chat_finish_tagged(p);
        break;
    default:
        chat_finish_literal(p);
    }
    if (p->in_call)
        chat_end_call(p);
}

int chat_parser_finish(struct chat_parser *p, enum chat_end end)
{
    if (chat_parser_error(p))
        return chat_parser_error(p);
    p->over = true;
    p->cut = end == CHAT_END_CUT;
    advance(p);
    if (chat_parser_error(p))
        return chat_parser_error(p);
    if (p->state == CHAT_AT_OBJECT)
        chat_finish_object(p);
    else if (p->state == CHAT_AT_LITERAL)
        chat_finish_literal(p);
    else if (p->state == CHAT_AT_NAME)
        chat_finish_name(p);
    else if (p->in_call)
        finish_call(p);
    return chat_parser_error(p);
}
