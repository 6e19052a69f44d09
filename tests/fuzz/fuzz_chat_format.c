/* The output of a model in every format, as events. The first byte selects the parser's options, the second
 * how the text is split, the third the format. Invariants: no crash; the same events for every split
 * (pieces of text joined). Calls begin and end in order, and arguments that the parser writes itself are
 * one JSON object. */
#include "base/check.h"
#include "base/json/json_source_load.h"
#include "base/slice.h"
#include "chat/chat_format.h"
#include "chat/chat_parser_state.h"
#include "chat/chat_syntax.h"
#include "unicode/utf8.h"

#include <errno.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char tools_text[] = "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": "
                                 "{\"type\": \"object\", \"properties\": {"
                                 "\"i\": {\"type\": \"integer\"}, \"n\": {\"type\": \"number\"}, \"b\": "
                                 "{\"type\": \"boolean\"}, \"s\": {\"type\": \"string\"},"
                                 "\"o\": {\"type\": \"object\"}, \"a\": {\"type\": \"array\"}, \"u\": "
                                 "{\"type\": [\"integer\", \"null\"]}}}}}]";

/* Events as text: a kind's letter where the kind or the call changes, then the pieces. */
struct told {
    struct buf all, arguments;
    int kind;
    uint32_t calls;
    bool in_call, json; /* json: the parser writes it, the model does not */
};

static void tell(void *arg, const struct chat_event *event)
{
    struct told *t = arg;
    if (event->kind != (enum chat_event_kind)t->kind || event->kind == CHAT_TOOL_BEGIN)
        buf_put(&t->all, (char[]){'\0', (char)('A' + event->kind)}, 2);
    t->kind = (int)event->kind;
    buf_put(&t->all, event->text.ptr, event->text.len);
    if (event->kind == CHAT_TOOL_BEGIN) {
        ASSERT(!t->in_call && event->index == t->calls);
        t->in_call = true;
        t->calls++;
        t->arguments.len = 0;
    } else if (event->kind == CHAT_TOOL_ARGUMENTS) {
        ASSERT(t->in_call && event->index + 1 == t->calls);
        buf_put(&t->arguments, event->text.ptr, event->text.len);
    } else if (event->kind == CHAT_TOOL_END) {
        ASSERT(t->in_call && event->index + 1 == t->calls);
        t->in_call = false;
        json_error_t e = {0};
        json_t *v = json_source_load(buf_slice(&t->arguments), JSON_ALLOW_NUL, &e);
        bool large = json_error_code(&e) == json_error_numeric_overflow; /* a double has no room for it
                                                                          * either */
        ASSERT(!t->json || large || t->arguments.error || json_is_object(v));
        json_decref(v);
    } else {
        ASSERT(!t->in_call && event->text.len > 0);
    }
}

/* The special token that the text begins with; UINT32_MAX: none. */
static uint32_t special_at(const struct chat_parser_opts *opts, struct slice text)
{
    for (uint32_t i = 0; opts->by_token && i < opts->syntax->special_count; i++)
        if (slice_starts(text, opts->syntax->specials[i].text))
            return i;
    return UINT32_MAX;
}

static int run(struct slice text, size_t piece, struct chat_parser_opts opts, enum chat_end end,
               struct told *ret)
{
    struct chat_parser *p = NULL;
    enum chat_arguments encoding = opts.syntax->arguments;
    *ret = (struct told){.kind = -1,
                         .json = end != CHAT_END_CUT && (encoding == CHAT_TAGGED || encoding == CHAT_PYTHON ||
                                                         encoding == CHAT_BRACED)};
    buf_init(&ret->all, 1 << 20, NULL);
    buf_init(&ret->arguments, 1 << 20, NULL);
    opts.sink = tell;
    opts.sink_arg = ret;
    ASSERT(chat_parser_create(&opts, &p) == 0);
    int r = 0;
    for (size_t i = 0; r == 0 && i < text.len;) {
        uint32_t special = special_at(&opts, slice_sub(text, i, text.len));
        if (special != UINT32_MAX) {
            r = chat_parser_push_special(p, special);
            i += opts.syntax->specials[special].text.len;
            continue;
        }
        size_t next = i + 1;
        while (next < text.len && (next < i + piece || ((uint8_t)text.ptr[next] & 0xc0) == 0x80) &&
               special_at(&opts, slice_sub(text, next, text.len)) == UINT32_MAX)
            next++;
        r = chat_parser_push(p, slice_sub(text, i, next - i));
        i = next;
    }
    if (r == 0)
        r = chat_parser_finish(p, end);
    ASSERT(r == 0 || r == -E2BIG);
    ASSERT(r != 0 || !ret->in_call);
    ASSERT(r != 0 || chat_parser_calls(p) == ret->calls);
    chat_parser_free(p);
    return r;
}

static void told_done(struct told *t)
{
    buf_done(&t->all);
    buf_done(&t->arguments);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct slice text = {(const char *)data + 3, size - 3};
    struct chat_syntax syntax;
    struct err e;
    uint32_t count = 0;
    while (chat_syntax_tool_name(count))
        count++;
    /* jansson, the judge of arguments, accepts no key with a zero byte in it. */
    if (size < 3 || !utf8_valid(text) || memchr(text.ptr, 0, text.len))
        return 0;
    const char *format = chat_syntax_tool_name(data[2] % count);
    ASSERT(chat_syntax_named(format, NULL, &syntax, &e) == 0);
    /* Every other marker is a token. */
    for (uint32_t m = 0; m < CHAT_MARKER_COUNT; m += 2)
        if (syntax.marker[m] && strchr("<[", syntax.marker[m][0]))
            syntax.specials[syntax.special_count++] =
                (struct chat_special){.id = m, .text = slice_of(syntax.marker[m]), .hidden = m & 2};
    syntax.reasoning_in_content = data[0] & 64;
    json_t *tools = json_loads(tools_text, 0, NULL);
    struct chat_parser_opts opts = {
        .syntax = &syntax,
        .by_token = data[0] & 8,
        .hide_special = data[0] & 32,
        .in_reasoning = data[0] & 1,
        .parse_tools = data[0] & 2,
        .tools = data[0] & 4 ? tools : NULL,
        .bytes_max = data[0] & 16 ? 64 : 1 << 20,
    };
    enum chat_end end = data[0] & 128 ? CHAT_END_CUT : CHAT_END_BY_MODEL;
    struct told whole, cut;
    int r = run(text, text.len + 1, opts, end, &whole);
    int s = run(text, data[1] % 16 + 1, opts, end, &cut);
    ASSERT(r == s || opts.bytes_max == 64); /* a piece has to fit too */
    ASSERT(r != 0 || s != 0 || slice_eq(buf_slice(&whole.all), buf_slice(&cut.all)));
    told_done(&whole);
    told_done(&cut);
    json_decref(tools);
    return 0;
}
