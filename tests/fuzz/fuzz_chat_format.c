/* The output of a model, as events. The first byte selects the parser's options, the second how the text is
 * split. Invariants: no crash; the same events for every split (pieces of text joined). Calls begin and end
 * in order, arguments are one JSON object, and every byte is returned. */
#include "base/check.h"
#include "text/chat_format.h"
#include "text/utf8.h"

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
    bool in_call;
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
        json_t *v = json_loadb(t->arguments.ptr, t->arguments.len, JSON_ALLOW_NUL, NULL);
        ASSERT(json_is_object(v));
        json_decref(v);
    } else {
        ASSERT(!t->in_call && event->text.len > 0);
    }
}

static int run(struct slice text, size_t piece, struct chat_parser_opts opts, struct told *ret)
{
    struct chat_parser *p = NULL;
    *ret = (struct told){.kind = -1};
    buf_init(&ret->all, 1 << 20, NULL);
    buf_init(&ret->arguments, 1 << 20, NULL);
    opts.sink = tell;
    opts.sink_arg = ret;
    ASSERT(chat_parser_create(&opts, &p) == 0);
    int r = 0;
    for (size_t i = 0; r == 0 && i < text.len;) {
        size_t end = i + piece < text.len ? i + piece : text.len;
        while (end < text.len && ((uint8_t)text.ptr[end] & 0xc0) == 0x80)
            end++;
        r = chat_parser_push(p, slice_sub(text, i, end - i));
        i = end;
    }
    if (r == 0)
        r = chat_parser_finish(p);
    ASSERT(r == 0 || r == -E2BIG);
    ASSERT(r != 0 || !ret->in_call);
    ASSERT(chat_parser_calls(p) == ret->calls);
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
    struct slice text = {(const char *)data + 2, size - 2};
    /* jansson, the judge of arguments, accepts no key with a zero byte in it. */
    if (size < 2 || !utf8_valid(text) || memchr(text.ptr, 0, text.len))
        return 0;
    json_t *tools = json_loads(tools_text, 0, NULL);
    struct chat_parser_opts opts = {
        .format = data[0] & 8 ? CHAT_FORMAT_PLAIN : CHAT_FORMAT_QWEN_XML,
        .in_reasoning = data[0] & 1,
        .parse_tools = data[0] & 2,
        .tools = data[0] & 4 ? tools : NULL,
        .bytes_max = data[0] & 16 ? 64 : 1 << 20,
    };
    struct told whole, cut;
    int r = run(text, text.len + 1, opts, &whole);
    int s = run(text, data[1] % 16 + 1, opts, &cut);
    ASSERT(r == s || opts.bytes_max == 64); /* a piece has to fit too */
    ASSERT(r != 0 || s != 0 || slice_eq(buf_slice(&whole.all), buf_slice(&cut.all)));
    told_done(&whole);
    told_done(&cut);
    json_decref(tools);
    return 0;
}
