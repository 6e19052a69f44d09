/* chat_format.c - a state machine over the text that is not classified yet.
 *
 * `pending` has the text that may still become markup: in running text at most a marker's length and the
 * blank lines before it, in a call the parameter being read. Each state inspects `pending`, emits the certain
 * part, and either changes state or needs more text. A parameter is emitted whole, because its type may need
 * parsing; that bounds memory by one parameter (bytes_max), not by a call. */
#include "text/chat_format.h"

#include "base/check.h"
#include "text/tool_arguments.h"

#include <errno.h>
#include <stdlib.h>

enum state {
    STATE_REASONING,
    STATE_CONTENT,
    STATE_CALL,      /* after <tool_call>: a function follows */
    STATE_FUNCTION,  /* after <function=N>: parameters, or its end */
    STATE_PARAMETER, /* after <parameter=K>: its value */
};

struct chat_parser {
    struct chat_parser_opts opts;
    struct charge charge;
    enum state state;
    bool at_start;   /* only white space until now: <think> may still open */
    bool skip_blank; /* white space is markup here: after </think> and calls */
    bool bare_call;  /* a <function= without <tool_call> before it */
    uint32_t calls, parameters;
    struct buf pending, name, key, json;
    bool over; /* end of input: `pending` is the whole rest */
};

static const struct slice think_open = SLICE("<think>"), think_close = SLICE("</think>");
static const struct slice call_open = SLICE("<tool_call>"), call_close = SLICE("</tool_call>");
static const struct slice function_open = SLICE("<function="), function_close = SLICE("</function>");
static const struct slice parameter_open = SLICE("<parameter="), parameter_close = SLICE("</parameter>");

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
    bool reasons = opts->format == CHAT_FORMAT_QWEN_XML && opts->in_reasoning;
    p->state = reasons ? STATE_REASONING : STATE_CONTENT;
    p->at_start = true;
    p->skip_blank = reasons;
    buf_init(&p->pending, opts->bytes_max, p->opts.charge);
    buf_init(&p->name, opts->bytes_max, p->opts.charge);
    buf_init(&p->key, opts->bytes_max, p->opts.charge);
    buf_init(&p->json, opts->bytes_max, p->opts.charge);
    *ret = p;
    return 0;
}

void chat_parser_free(struct chat_parser *p)
{
    if (!p)
        return;
    buf_done(&p->pending);
    buf_done(&p->name);
    buf_done(&p->key);
    buf_done(&p->json);
    struct charge charge = p->charge;
    bool charged = p->opts.charge != NULL;
    free(p);
    if (charged)
        charge_give(&charge, sizeof(*p));
}

uint32_t chat_parser_calls(const struct chat_parser *p)
{
    return p->calls;
}

static void emit(struct chat_parser *p, enum chat_event_kind kind, struct slice text)
{
    uint32_t index = kind == CHAT_REASONING || kind == CHAT_CONTENT ? 0 : p->calls - 1;
    struct chat_event event = {kind, index, text};
    if (text.len > 0 || kind == CHAT_TOOL_END)
        p->opts.sink(p->opts.sink_arg, &event);
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static size_t blank_prefix(struct slice s)
{
    size_t n = 0;
    while (n < s.len && is_blank(s.ptr[n]))
        n++;
    return n;
}

static size_t without_blank_tail(struct slice s)
{
    while (s.len && is_blank(s.ptr[s.len - 1]))
        s.len--;
    return s.len;
}

/* Length of the longest tail of `s` that is a proper head of `marker`. */
static size_t tail_of_marker(struct slice s, struct slice marker)
{
    for (size_t n = MIN_OF(s.len, marker.len - 1); n > 0; n--)
        if (memcmp(s.ptr + s.len - n, marker.ptr, n) == 0)
            return n;
    return 0;
}

static void consume(struct chat_parser *p, size_t bytes)
{
    buf_consume(&p->pending, bytes);
}

/* Emits running text up to `end`, less what must wait: `tail` bytes that may be a marker, and blanks before
 * them. */
static void emit_text(struct chat_parser *p, enum chat_event_kind kind, size_t end)
{
    if (end == 0)
        return;
    emit(p, kind, slice_sub(buf_slice(&p->pending), 0, end));
    p->at_start = false;
    consume(p, end);
}

/* White space that belongs to the markup. True when there may be more of it. */
static bool skip_blanks(struct chat_parser *p)
{
    consume(p, blank_prefix(buf_slice(&p->pending)));
    return p->pending.len == 0;
}

static bool step_reasoning(struct chat_parser *p)
{
    if (p->skip_blank && skip_blanks(p))
        return false;
    struct slice s = buf_slice(&p->pending);
    if (p->at_start && slice_starts(s, think_open)) {
        consume(p, think_open.len);
        return true;
    }
    if (p->at_start && !p->over && slice_starts(think_open, s))
        return false;
    p->skip_blank = false;
    size_t at = slice_find(s, think_close, 0);
    if (at == SIZE_MAX) {
        size_t held = p->over ? 0 : tail_of_marker(s, think_close);
        emit_text(p, CHAT_REASONING, without_blank_tail(slice_sub(s, 0, s.len - held)));
        return false;
    }
    size_t end = without_blank_tail(slice_sub(s, 0, at));
    emit_text(p, CHAT_REASONING, end);
    consume(p, at - end + think_close.len);
    p->state = STATE_CONTENT;
    p->at_start = false;
    p->skip_blank = true;
    return true;
}

static size_t first_of(size_t a, size_t b)
{
    return MIN_OF(a, b); /* SIZE_MAX: not found */
}

/* Bytes at the end of running text that wait for more: a marker's head and the blanks before it. */
static size_t held_content(const struct chat_parser *p, struct slice s)
{
    if (p->over || !p->opts.parse_tools)
        return 0;
    size_t held = MAX_OF(tail_of_marker(s, call_open), tail_of_marker(s, function_open));
    return s.len - without_blank_tail(slice_sub(s, 0, s.len - held));
}

static bool step_content(struct chat_parser *p)
{
    if (p->skip_blank && skip_blanks(p))
        return false;
    struct slice s = buf_slice(&p->pending);
    size_t blanks = blank_prefix(s);
    struct slice head = slice_sub(s, blanks, s.len);
    if (p->at_start && slice_starts(head, think_open)) {
        consume(p, blanks + think_open.len);
        p->state = STATE_REASONING;
        p->at_start = false;
        p->skip_blank = true;
        return true;
    }
    if (p->at_start && !p->over && slice_starts(think_open, head))
        return false;
    size_t call = p->opts.parse_tools ? slice_find(s, call_open, 0) : SIZE_MAX;
    size_t bare = p->opts.parse_tools ? slice_find(s, function_open, 0) : SIZE_MAX;
    size_t at = first_of(call, bare);
    if (at == SIZE_MAX) {
        size_t end = s.len - held_content(p, s);
        p->skip_blank = p->skip_blank && end == 0;
        emit_text(p, CHAT_CONTENT, end);
        return false;
    }
    size_t end = without_blank_tail(slice_sub(s, 0, at));
    emit_text(p, CHAT_CONTENT, end);
    consume(p, at - end + (at == call ? call_open.len : 0));
    p->state = STATE_CALL;
    p->bare_call = at != call;
    p->at_start = false;
    return true;
}

/* Reads "NAME>" at `from` into `ret`. False when its end has not arrived. */
static bool read_name(struct chat_parser *p, size_t from, struct buf *ret)
{
    struct slice s = buf_slice(&p->pending);
    size_t end = slice_find(s, SLICE(">"), from);
    if (end == SIZE_MAX)
        return false;
    buf_clear(ret);
    buf_put_slice(ret, slice_sub(s, from, end - from));
    consume(p, end + 1);
    return true;
}

static void begin_call(struct chat_parser *p)
{
    p->calls++;
    p->parameters = 0;
    emit(p, CHAT_TOOL_BEGIN, buf_slice(&p->name));
    emit(p, CHAT_TOOL_ARGUMENTS, SLICE("{"));
}

static void end_call(struct chat_parser *p)
{
    emit(p, CHAT_TOOL_ARGUMENTS, SLICE("}"));
    emit(p, CHAT_TOOL_END, SLICE(""));
}

/* A function without <tool_call> has ended: running text again, without the </tool_call> that may follow
 * anyway. */
static bool step_after_bare_call(struct chat_parser *p)
{
    struct slice s = buf_slice(&p->pending);
    if (!p->over && s.len < call_close.len && slice_starts(call_close, s))
        return false;
    consume(p, slice_starts(s, call_close) ? call_close.len : 0);
    p->state = STATE_CONTENT;
    p->skip_blank = true;
    return true;
}

static bool step_call(struct chat_parser *p)
{
    if (skip_blanks(p))
        return false;
    struct slice s = buf_slice(&p->pending);
    if (slice_starts(s, function_open)) {
        if (!read_name(p, function_open.len, &p->name))
            return false;
        if (p->name.len > 0) {
            begin_call(p);
            p->state = STATE_FUNCTION;
        }
        return true;
    }
    if (p->bare_call)
        return step_after_bare_call(p);
    size_t close = slice_find(s, call_close, 0), open = slice_find(s, function_open, 0);
    if (open < close) {
        consume(p, open); /* text between the markers is dropped */
        return true;
    }
    if (close != SIZE_MAX) {
        /* No (further) function inside: the text there is content. */
        emit_text(p, CHAT_CONTENT, without_blank_tail(slice_sub(s, 0, close)));
        consume(p, slice_find(buf_slice(&p->pending), call_close, 0) + call_close.len);
        p->state = STATE_CONTENT;
        p->skip_blank = true;
        return true;
    }
    return false;
}

static bool step_function(struct chat_parser *p)
{
    if (skip_blanks(p))
        return false;
    struct slice s = buf_slice(&p->pending);
    if (slice_starts(s, parameter_open)) {
        if (!read_name(p, parameter_open.len, &p->key))
            return false;
        p->state = STATE_PARAMETER;
        return true;
    }
    if (slice_starts(s, function_close) || slice_starts(s, call_close)) {
        end_call(p);
        /* A </tool_call> without </function> ends both: leave it for the call. */
        consume(p, slice_starts(s, function_close) ? function_close.len : 0);
        p->state = STATE_CALL;
        return true;
    }
    if (slice_starts(parameter_open, s) || slice_starts(function_close, s) || slice_starts(call_close, s))
        return false;
    /* Stray text between parameters: up to the next marker. */
    size_t next = slice_find(s, SLICE("<"), 1);
    consume(p, next == SIZE_MAX ? s.len : next);
    return true;
}

static bool step_parameter(struct chat_parser *p)
{
    struct slice s = buf_slice(&p->pending);
    size_t end = slice_find(s, parameter_close, 0);
    if (end == SIZE_MAX)
        return false;
    struct slice value = slice_sub(s, 0, end);
    if (slice_starts(value, SLICE("\n")))
        value = slice_sub(value, 1, value.len);
    if (slice_ends(value, SLICE("\n")))
        value.len--;
    buf_clear(&p->json);
    if (p->parameters++ > 0)
        buf_puts(&p->json, ", ");
    json_write_string(&p->json, buf_slice(&p->key));
    buf_puts(&p->json, ": ");
    tool_argument_write(&p->json, p->opts.tools, buf_slice(&p->name), buf_slice(&p->key), value);
    emit(p, CHAT_TOOL_ARGUMENTS, buf_slice(&p->json));
    consume(p, end + parameter_close.len);
    p->state = STATE_FUNCTION;
    return true;
}

/* True: something changed, call again. False: more text is needed. */
static bool step(struct chat_parser *p)
{
    switch (p->state) {
    case STATE_REASONING:
        return step_reasoning(p);
    case STATE_CONTENT:
        return step_content(p);
    case STATE_CALL:
        return step_call(p);
    case STATE_FUNCTION:
        return step_function(p);
    case STATE_PARAMETER:
        return step_parameter(p);
    }
    return false;
}

static int parser_error(const struct chat_parser *p)
{
    const struct buf *bufs[] = {&p->pending, &p->name, &p->key, &p->json};
    for (size_t i = 0; i < COUNT_OF(bufs); i++)
        if (bufs[i]->error)
            return bufs[i]->error;
    return 0;
}

int chat_parser_push(struct chat_parser *p, struct slice text)
{
    if (p->opts.format == CHAT_FORMAT_PLAIN) {
        emit(p, CHAT_CONTENT, text);
        return 0;
    }
    buf_put_slice(&p->pending, text);
    while (!parser_error(p) && step(p))
        ;
    return parser_error(p);
}

int chat_parser_finish(struct chat_parser *p)
{
    if (p->opts.format == CHAT_FORMAT_PLAIN || parser_error(p))
        return parser_error(p);
    p->over = true;
    while (step(p))
        ;
    if (p->state == STATE_FUNCTION || p->state == STATE_PARAMETER)
        end_call(p);
    return parser_error(p);
}

bool chat_prompt_in_reasoning(struct slice rendered)
{
    size_t open = SIZE_MAX, close = 0;
    for (size_t at = 0; (at = slice_find(rendered, think_open, at)) != SIZE_MAX; at++)
        open = at;
    for (size_t at = 0; (at = slice_find(rendered, think_close, at)) != SIZE_MAX; at++)
        close = at;
    /* Only a block that the generation prompt left open counts: white space may follow it, nothing else. */
    if (open == SIZE_MAX || open < close)
        return false;
    struct slice rest = slice_sub(rendered, open + think_open.len, rendered.len);
    return blank_prefix(rest) == rest.len;
}
