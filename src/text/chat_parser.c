/* chat_parser.c - running text and reasoning; which step follows which, and what every step shares. */
#include "text/chat_parser_state.h"

#include "base/check.h"

#include <errno.h>
#include <stdlib.h>

#define IDLE_STEPS_MAX 64

/* ---- markers ---- */

bool chat_is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

/* The special token whose text stands at the start of `s`; the longest. */
static uint32_t special_at(const struct chat_syntax *syntax, struct slice s)
{
    uint32_t best = UINT32_MAX;
    for (uint32_t i = 0; i < syntax->special_count; i++)
        if (slice_starts(s, syntax->specials[i].text) &&
            (best == UINT32_MAX || syntax->specials[i].text.len > syntax->specials[best].text.len))
            best = i;
    return best;
}

static void put_marker(struct chat_parser *p, struct slice s)
{
    while (s.len) {
        uint32_t special = p->opts.by_token ? special_at(p->opts.syntax, s) : UINT32_MAX;
        size_t n = special == UINT32_MAX ? 1 : p->opts.syntax->specials[special].text.len;
        if (special == UINT32_MAX)
            buf_putc(&p->marks, s.ptr[0]);
        else
            buf_put(&p->marks, (char[]){CHAT_SPECIAL_BYTE, (char)(0x80 + special)}, 2);
        s = slice_sub(s, n, s.len);
    }
}

static struct slice trimmed(const char *text)
{
    struct slice s = slice_of(text);
    if (s.len == 1 && s.ptr[0] == '\n')
        return s; /* a marker of its own */
    while (s.len && chat_is_blank(s.ptr[0]))
        s = slice_sub(s, 1, s.len);
    while (s.len && chat_is_blank(s.ptr[s.len - 1]))
        s.len--;
    return s;
}

/* The markers as they will stand in `pending`. They lie in one block, which must not move: lengths come
 * first. */
static int make_marks(struct chat_parser *p)
{
    size_t from[CHAT_MARKER_COUNT + 2];
    for (uint32_t m = 0; m < CHAT_MARKER_COUNT; m++) {
        from[m] = p->marks.len;
        put_marker(p, trimmed(p->opts.syntax->marker[m]));
    }
    from[CHAT_MARKER_COUNT] = p->marks.len;
    put_marker(p, trimmed(p->opts.syntax->opens));
    from[CHAT_MARKER_COUNT + 1] = p->marks.len;
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
    return p->mark[m].len > 0 && slice_starts(text, p->mark[m]);
}

bool chat_may_become(const struct chat_parser *p, struct slice text, enum chat_marker m)
{
    return !p->over && text.len < p->mark[m].len && slice_starts(p->mark[m], text);
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
    return held;
}

/* ---- input ---- */

struct slice chat_rest(const struct chat_parser *p)
{
    return slice_sub(buf_slice(&p->pending), p->at, p->pending.len);
}

void chat_consume(struct chat_parser *p, size_t bytes)
{
    ASSERT(bytes <= p->pending.len - p->at);
    p->at += bytes;
    p->scanned = 0;
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
    while (n < s.len && chat_is_blank(s.ptr[n]))
        n++;
    chat_consume(p, n);
    return n == s.len;
}

size_t chat_without_blank_tail(struct slice s)
{
    size_t least = s.len > CHAT_BLANKS_MAX ? s.len - CHAT_BLANKS_MAX : 0;
    while (s.len > least && chat_is_blank(s.ptr[s.len - 1]))
        s.len--;
    return s.len;
}

/* ---- events ---- */

/* The text of special tokens; in a JSON string with its quotes escaped. */
static void put_special(const struct chat_parser *p, char code, bool in_json, struct buf *ret)
{
    uint32_t index = (uint32_t)((unsigned char)code - 0x80);
    if (index >= p->opts.syntax->special_count ||
        (p->opts.hide_special && p->opts.syntax->specials[index].hidden))
        return;
    struct slice text = p->opts.syntax->specials[index].text;
    for (size_t i = 0; i < text.len; i++) {
        if (in_json && (text.ptr[i] == '"' || text.ptr[i] == '\\'))
            buf_putc(ret, '\\');
        buf_putc(ret, text.ptr[i]);
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

static int parser_error(const struct chat_parser *p)
{
    const struct buf *bufs[] = {&p->pending,     &p->name,         &p->id,          &p->key,
                                &p->json,        &p->shown,        &p->object.raw,  &p->object.early,
                                &p->stream.held, &p->literal.held, &p->literal.word};
    for (size_t i = 0; i < COUNT_OF(bufs) && !p->error; i++)
        if (bufs[i]->error)
            return bufs[i]->error;
    return p->error;
}

/* Nothing follows a failure: an event would lack bytes. */
static void say(struct chat_parser *p, enum chat_event_kind kind, struct slice text)
{
    uint32_t index = kind == CHAT_REASONING || kind == CHAT_CONTENT ? 0 : p->calls - 1;
    struct chat_event event = {.kind = kind, .index = index, .text = text};
    if (kind == CHAT_TOOL_BEGIN)
        event.id = buf_slice(&p->id);
    if ((text.len > 0 || kind == CHAT_TOOL_END) && !parser_error(p))
        p->opts.sink(p->opts.sink_arg, &event);
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
    if (bytes == 0)
        return;
    chat_emit(p, kind, slice_sub(chat_rest(p), 0, bytes));
    p->at_start = false;
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
        say(p, CHAT_TOOL_ARGUMENTS, slice_sub(text, 0, n));
        text = slice_sub(text, n, text.len);
    }
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

void chat_end_call(struct chat_parser *p)
{
    ASSERT(p->in_call);
    chat_emit(p, CHAT_TOOL_END, SLICE(""));
    p->in_call = false;
    p->at_start = false;
    p->state = CHAT_AT_AFTER;
}

/* ---- running text ---- */

void chat_to_text(struct chat_parser *p)
{
    p->state = CHAT_AT_TEXT;
    p->in_section = false;
    p->skip_blank = true;
}

void chat_to_section(struct chat_parser *p)
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
    size_t at = chat_find_mark(p, s, 0, marks, &found);
    if (at == SIZE_MAX) {
        size_t held = p->over ? 0 : chat_mark_tail(p, s, marks);
        chat_emit_rest(p, CHAT_REASONING, chat_without_blank_tail(slice_sub(s, 0, s.len - held)));
        return false;
    }
    size_t end = chat_without_blank_tail(slice_sub(s, 0, at));
    chat_emit_rest(p, CHAT_REASONING, end);
    chat_consume(p, at - end + p->mark[CHAT_REASONING_CLOSE].len);
    p->state = CHAT_AT_TEXT;
    p->at_start = false;
    p->skip_blank = true;
    return true;
}

static uint32_t text_marks(const struct chat_parser *p)
{
    uint32_t marks = CHAT_MARK_BIT(CHAT_TEXT_BEGIN) | CHAT_MARK_BIT(CHAT_TEXT_END);
    struct slice open = p->mark[CHAT_REASONING_OPEN];
    if (p->opts.parse_tools)
        marks |= CHAT_MARK_BIT(CHAT_SECTION_BEGIN) | CHAT_MARK_BIT(CHAT_CALL_BEGIN);
    /* As a token it is no text of the model's, wherever it stands. */
    if (open.len && open.ptr[0] == CHAT_SPECIAL_BYTE)
        marks |= CHAT_MARK_BIT(CHAT_REASONING_OPEN);
    return marks;
}

static void to_reasoning(struct chat_parser *p)
{
    p->state = CHAT_AT_REASONING;
    p->at_start = false;
    p->skip_blank = true;
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

static void take_text_mark(struct chat_parser *p, size_t at, enum chat_marker found)
{
    bool tool = found == CHAT_SECTION_BEGIN || found == CHAT_CALL_BEGIN;
    size_t end = found == CHAT_TEXT_BEGIN || found == CHAT_TEXT_END
                     ? at
                     : chat_without_blank_tail(slice_sub(chat_rest(p), 0, at));
    chat_emit_rest(p, CHAT_CONTENT, end);
    /* The white space is content after all when the marker turns out to be none. */
    buf_clear(&p->key);
    buf_put_slice(&p->key, slice_sub(chat_rest(p), 0, at - end));
    chat_consume(p, at - end + p->mark[found].len);
    p->skip_blank = tool ? false : found == CHAT_TEXT_END;
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

static bool step_text(struct chat_parser *p)
{
    if (p->skip_blank && chat_skip_blanks(p))
        return false;
    struct slice s = chat_rest(p), head = s;
    while (head.len && chat_is_blank(head.ptr[0]))
        head = slice_sub(head, 1, head.len);
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
    size_t end = s.len;
    if (!p->over) {
        end -= chat_mark_tail(p, s, marks);
        if (p->opts.parse_tools)
            end = chat_without_blank_tail(slice_sub(s, 0, end));
    }
    p->skip_blank = p->skip_blank && end == 0;
    chat_emit_rest(p, CHAT_CONTENT, end);
    return false;
}

/* ---- sections ---- */

/* Text that is neither a call nor the end: content when no call follows, as a model writes that only
 * mentions a marker; dropped between calls. */
static bool step_stray(struct chat_parser *p, struct slice s)
{
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
    size_t at = objects ? SIZE_MAX : chat_find_mark(p, s, 0, calls | ends, &found);
    for (size_t i = 0; objects && i < s.len && at == SIZE_MAX; i++)
        if (s.ptr[i] == '{' || s.ptr[i] == '[' || chat_is_mark(p, slice_sub(s, i, s.len), CHAT_SECTION_END)) {
            found = s.ptr[i] == '{' || s.ptr[i] == '[' ? CHAT_CALL_BEGIN : CHAT_SECTION_END;
            at = i;
        }
    if (at == SIZE_MAX) {
        bool head = chat_mark_tail(p, s, calls | ends) == s.len;
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
    chat_to_section(p);
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
    int r = make_marks(p);
    if (r < 0)
        return r;
    chat_literal_init(&p->literal, s->arguments == CHAT_BRACED ? CHAT_LITERAL_BRACED : CHAT_LITERAL_PYTHON,
                      p->mark[CHAT_QUOTE], p->opts.bytes_max, p->opts.charge);
    p->at_start = true;
    if (s->shape == CHAT_CHANNELS) {
        p->state = CHAT_AT_HEADER;
    } else if (p->opts.in_reasoning && p->mark[CHAT_REASONING_CLOSE].len) {
        p->state = CHAT_AT_REASONING;
        p->skip_blank = true;
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
    while (!parser_error(p) && step(p)) {
        idle = p->at == at ? idle + 1 : 0;
        at = p->at;
        if (idle > IDLE_STEPS_MAX)
            p->error = -EPROTO;
    }
    buf_consume(&p->pending, p->at);
    p->at = 0;
    return parser_error(p);
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

int chat_parser_finish(struct chat_parser *p)
{
    if (parser_error(p))
        return parser_error(p);
    p->over = true;
    advance(p);
    if (parser_error(p))
        return parser_error(p);
    if (p->state == CHAT_AT_OBJECT)
        chat_finish_object(p);
    else if (p->state == CHAT_AT_LITERAL)
        chat_finish_literal(p);
    else if (p->in_call)
        finish_call(p);
    return parser_error(p);
}
