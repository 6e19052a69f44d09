/* chat_syntax.c - which description belongs to a template. */
#include "chat/chat_syntax.h"

#include "chat/chat_probe.h"
#include "chat/chat_tables.h"

#include "base/buf.h"
#include "base/check.h"
#include "base/json/json_out.h"
#include "template/chat_template.h"
#include "tokenizer/tokenizer.h"

#include <errno.h>

const char *chat_syntax_tool_name(uint32_t index)
{
    return index < chat_tool_format_count ? chat_tool_formats[index].name : NULL;
}

static const char *reasoning_name(uint32_t index)
{
    return index < chat_reasoning_format_count ? chat_reasoning_formats[index].name : NULL;
}

/* ---- the tables ---- */

static const struct chat_tool_format *tool_format(const char *name)
{
    for (uint32_t i = 0; i < chat_tool_format_count; i++)
        if (strcmp(chat_tool_formats[i].name, name) == 0)
            return &chat_tool_formats[i];
    return NULL;
}

static const struct chat_reasoning_format *reasoning_format(const char *name)
{
    for (uint32_t i = 0; i < chat_reasoning_format_count; i++)
        if (strcmp(chat_reasoning_formats[i].name, name) == 0)
            return &chat_reasoning_formats[i];
    return NULL;
}

static void take_tools(struct chat_syntax *ret, const struct chat_tool_format *f, enum chat_found found)
{
    ASSERT(f);
    struct chat_syntax reasoning = *ret;
    *ret = f->syntax;
    ret->tool_format = f->name;
    ret->tool_found = found;
    ret->reasoning_format = reasoning.reasoning_format;
    ret->reasoning_found = reasoning.reasoning_found;
    ret->marker[CHAT_REASONING_OPEN] = reasoning.marker[CHAT_REASONING_OPEN];
    ret->marker[CHAT_REASONING_CLOSE] = reasoning.marker[CHAT_REASONING_CLOSE];
}

static void take_reasoning(struct chat_syntax *ret, const struct chat_reasoning_format *f,
                           enum chat_found found)
{
    ASSERT(f); /* the tables name formats that there are */
    ret->reasoning_format = f->name;
    ret->reasoning_found = found;
    ret->marker[CHAT_REASONING_OPEN] = f->open;
    ret->marker[CHAT_REASONING_CLOSE] = f->close;
}

static bool mentions_all(const struct chat_template *t, const char *const *hints)
{
    for (uint32_t i = 0; i < CHAT_HINTS_MAX && hints[i]; i++)
        if (!chat_template_mentions(t, slice_of(hints[i])))
            return false;
    return hints[0] != NULL;
}

static const struct chat_tool_format *by_hints(const struct chat_template *t, bool first)
{
    for (uint32_t i = 0; i < chat_tool_format_count; i++)
        if (chat_tool_formats[i].first == first && mentions_all(t, chat_tool_formats[i].hints))
            return &chat_tool_formats[i];
    return NULL;
}

/* ---- names ---- */

static bool is_given(const char *name)
{
    return name && name[0] && strcmp(name, "auto") != 0;
}

static int unknown_name(const char *what, const char *name, const char *(*list)(uint32_t), struct err *e)
{
    struct buf names;
    buf_init(&names, 4096, NULL);
    for (uint32_t i = 0; list(i); i++)
        if (i == 0 || strcmp(list(i), list(i - 1)) != 0)
            buf_printf(&names, "%s%s", i ? ", " : "", list(i));
    int r = err_set(e, -EINVAL, "there is no %s \"%.60s\"; it is auto or one of: %.*s", what, name,
                    SLICE_ARGS(buf_slice(&names)));
    buf_done(&names);
    return r;
}

static int take_names(const char *tools, const char *reasoning, struct chat_syntax *ret, struct err *e)
{
    if (is_given(tools)) {
        const struct chat_tool_format *f = tool_format(tools);
        if (!f)
            return unknown_name("tool format", tools, chat_syntax_tool_name, e);
        take_tools(ret, f, CHAT_BY_NAME);
    }
    if (is_given(reasoning)) {
        const struct chat_reasoning_format *f = reasoning_format(reasoning);
        if (!f)
            return unknown_name("reasoning format", reasoning, reasoning_name, e);
        take_reasoning(ret, f, CHAT_BY_NAME);
    }
    return 0;
}

int chat_syntax_named(const char *tools, const char *reasoning, struct chat_syntax *ret, struct err *e)
{
    struct chat_syntax s = {.tool_format = "none", .reasoning_format = "none"};
    int r = take_names(tools, reasoning, &s, e);
    const struct chat_tool_format *f = is_given(tools) ? tool_format(tools) : NULL;
    if (r == 0 && f && f->reasoning && !is_given(reasoning))
        take_reasoning(&s, reasoning_format(f->reasoning), CHAT_BY_TABLE);
    if (r == 0)
        *ret = s;
    return r;
}

/* ---- finding ---- */

/* The markers say the same as a known format's. */
static bool same_calls(const struct chat_syntax *a, const struct chat_syntax *b)
{
    if (a->shape != b->shape || a->arguments != b->arguments || a->list != b->list)
        return false;
    for (uint32_t m = CHAT_TEXT_BEGIN; m < CHAT_MARKER_COUNT; m++) {
        struct slice x = slice_of(a->marker[m]), y = slice_of(b->marker[m]);
        while (x.len && strchr(" \n", x.ptr[0]))
            x = slice_sub(x, 1, x.len);
        while (y.len && strchr(" \n", y.ptr[0]))
            y = slice_sub(y, 1, y.len);
        while (x.len && strchr(" \n", x.ptr[x.len - 1]))
            x.len--;
        while (y.len && strchr(" \n", y.ptr[y.len - 1]))
            y.len--;
        if (!slice_eq(x, y))
            return false;
    }
    const char *keys[][2] = {{a->name_key, b->name_key}, {a->arguments_key, b->arguments_key}};
    for (size_t i = 0; i < COUNT_OF(keys); i++)
        if (!keys[i][0] != !keys[i][1] || (keys[i][0] && strcmp(keys[i][0], keys[i][1]) != 0))
            return false;
    return true;
}

static void find_tools(const struct chat_template *t, struct arena *a, struct arena *scratch,
                       struct chat_syntax *ret)
{
    struct chat_syntax probed = {.shape = CHAT_CONTENT_ONLY};
    const struct chat_tool_format *f = by_hints(t, true);
    if (f) {
        take_tools(ret, f, CHAT_BY_TABLE);
        return;
    }
    if (chat_probe_tools(t, a, scratch, &probed)) {
        probed.tool_format = "template";
        for (uint32_t i = 0; i < chat_tool_format_count; i++)
            if (same_calls(&probed, &chat_tool_formats[i].syntax)) {
                probed.tool_format = chat_tool_formats[i].name;
                break;
            }
        struct chat_tool_format row = {.name = probed.tool_format, .syntax = probed};
        take_tools(ret, &row, CHAT_BY_RENDERING);
        return;
    }
    f = by_hints(t, false);
    if (f)
        take_tools(ret, f, CHAT_BY_MARKER);
    else if (!chat_template_mentions(t, SLICE("tools")))
        take_tools(ret, tool_format("generic"), CHAT_BY_TABLE);
}

static void find_reasoning(const struct chat_template *t, struct arena *a, struct arena *scratch,
                           struct chat_syntax *ret)
{
    const struct chat_tool_format *f = ret->tool_format ? tool_format(ret->tool_format) : NULL;
    if (f && f->reasoning) {
        take_reasoning(ret, reasoning_format(f->reasoning), CHAT_BY_TABLE);
        return;
    }
    for (uint32_t i = 0; i < chat_reasoning_format_count; i++) {
        const char *hint = chat_reasoning_formats[i].hint;
        if (hint && chat_template_mentions(t, slice_of(hint))) {
            take_reasoning(ret, &chat_reasoning_formats[i], CHAT_BY_MARKER);
            return;
        }
    }
    if (chat_probe_reasoning(t, a, scratch, ret)) {
        ret->reasoning_format = "template";
        ret->reasoning_found = CHAT_BY_RENDERING;
    }
}

static void find_prompt(const struct chat_template *t, struct arena *scratch, struct chat_syntax *ret)
{
    struct buf text;
    buf_init(&text, (size_t)1 << 20, NULL);
    if (chat_probe_prompt(t, scratch, NULL, &text))
        ret->prompt_reasons = chat_syntax_prompt_reasons(ret, buf_slice(&text));
    buf_done(&text);
}

/* ---- special tokens ---- */

static void add_special(struct chat_syntax *s, const struct chat_syntax_opts *opts, uint32_t id)
{
    ASSERT(s->special_count <= CHAT_SPECIALS_MAX);
    const struct tokenizer *t = opts->tokenizer;
    if (s->special_count == CHAT_SPECIALS_MAX || chat_syntax_special(s, id) != UINT32_MAX ||
        id >= opts->vocab)
        return;
    s->specials[s->special_count++] = (struct chat_special){
        .id = id, .text = tokenizer_token_bytes(t, id), .hidden = tokenizer_is_special(t, id)};
}

/* The longest token at each place of the marker. */
static void find_specials_of(struct chat_syntax *s, const struct chat_syntax_opts *opts, struct slice marker)
{
    for (size_t i = 0; i < marker.len;) {
        size_t len = marker.len - i;
        uint32_t id = 0;
        while (len > 0 && !tokenizer_find(opts->tokenizer, slice_sub(marker, i, len), &id))
            len--;
        /* A letter or a line end may be an added token as well: it is text. */
        if (len > 2)
            add_special(s, opts, id);
        i += len ? len : 1;
    }
}

static void find_specials(struct chat_syntax *s, const struct chat_syntax_opts *opts)
{
    s->special_count = 0;
    for (uint32_t m = 0; opts->tokenizer && m < CHAT_MARKER_COUNT; m++)
        find_specials_of(s, opts, slice_of(s->marker[m]));
}

static struct slice trimmed(const char *text)
{
    struct slice s = slice_of(text);
    while (s.len && strchr(" \t\r\n", s.ptr[s.len - 1]))
        s.len--;
    return s;
}

/* A row of the table names markers that models of its tools may lack: the template or the vocabulary has
 * them then. */
static bool has_reasoning(const struct chat_syntax_opts *opts, const struct chat_syntax *s)
{
    struct slice open = trimmed(s->marker[CHAT_REASONING_OPEN]),
                 close = trimmed(s->marker[CHAT_REASONING_CLOSE]);
    uint32_t id;
    return s->reasoning_found != CHAT_BY_TABLE || chat_template_mentions(opts->template, open) ||
           chat_template_mentions(opts->template, close) ||
           (opts->tokenizer && tokenizer_find(opts->tokenizer, open, &id) && id < opts->vocab);
}

int chat_syntax_find(struct arena *a, struct arena *scratch, const struct chat_syntax_opts *opts,
                     struct chat_syntax *ret, struct err *e)
{
    struct chat_syntax s;
    int r = chat_syntax_named(opts->tool_format, opts->reasoning_format, &s, e);
    if (r < 0)
        return r;
    if (opts->template && s.tool_found == CHAT_BY_NONE)
        find_tools(opts->template, a, scratch, &s);
    if (opts->template && s.reasoning_found == CHAT_BY_NONE)
        find_reasoning(opts->template, a, scratch, &s);
    if (opts->template) {
        chat_probe_history(opts->template, scratch, &s);
        find_prompt(opts->template, scratch, &s);
        /* Otherwise the prompt has the marker, with the white space of the template. */
        s.reasoning_in_content &= !s.prompt_reasons && has_reasoning(opts, &s);
    }
    find_specials(&s, opts);
    *ret = s;
    return 0;
}

uint32_t chat_syntax_special(const struct chat_syntax *s, uint32_t id)
{
    for (uint32_t i = 0; i < s->special_count; i++)
        if (s->specials[i].id == id)
            return i;
    return UINT32_MAX;
}

struct slice chat_syntax_bare(const char *marker)
{
    struct slice s = slice_of(marker);
    return slice_eq(s, SLICE("\n")) ? s : slice_trim(s, SLICE_BLANKS);
}

uint32_t chat_syntax_special_at(const struct chat_syntax *s, struct slice text)
{
    uint32_t best = UINT32_MAX;
    for (uint32_t i = 0; i < s->special_count; i++)
        if (s->specials[i].text.len > 0 && slice_starts(text, s->specials[i].text) &&
            (best == UINT32_MAX || s->specials[i].text.len > s->specials[best].text.len))
            best = i;
    return best;
}

/* ---- prompts ---- */

/* Where the last `marker` begins; SIZE_MAX: nowhere. */
static size_t find_last(struct slice s, struct slice marker)
{
    for (size_t at = s.len; marker.len && at-- > 0;)
        if (slice_starts(slice_sub(s, at, s.len), marker))
            return at;
    return SIZE_MAX;
}

/* Only white space may follow: so the marker lies in the tail. */
static bool ends_with(struct slice rendered, const char *marker)
{
    struct slice m = trimmed(marker);
    while (rendered.len && strchr(" \t\r\n", rendered.ptr[rendered.len - 1]))
        rendered.len--;
    struct slice tail = slice_sub(rendered, rendered.len > m.len ? rendered.len - m.len : 0, m.len);
    return m.len && find_last(tail, m) == 0;
}

bool chat_syntax_prompt_reasons(const struct chat_syntax *s, struct slice rendered)
{
    return ends_with(rendered, s->marker[CHAT_REASONING_OPEN]);
}

bool chat_syntax_prompt_reasoned(const struct chat_syntax *s, struct slice rendered)
{
    return ends_with(rendered, s->marker[CHAT_REASONING_CLOSE]);
}

/* ---- for people ---- */

static const char *const found_names[] = {"none", "name", "table", "rendering", "marker"};
static const char *const shape_names[] = {"content_only", "calls", "channels"};
static const char *const argument_names[] = {"json", "json_call", "tagged", "python", "braced"};
static const char *const marker_names[CHAT_MARKER_COUNT] = {
    "reasoning_open", "reasoning_close", "text_begin", "text_end",  "section_begin", "section_end",
    "call_begin",     "id_begin",        "name_end",   "key_begin", "key_end",       "key_end_json",
    "value_begin",    "value_end",       "call_end",   "quote",     "channel_begin"};

void chat_syntax_describe(const struct chat_syntax *s, struct json_out *j)
{
    ASSERT((size_t)s->tool_found < COUNT_OF(found_names) && (size_t)s->shape < COUNT_OF(shape_names));
    JSON_PUT_STRINGS(j, {"tool_format", s->tool_format}, {"tool_format_found_by", found_names[s->tool_found]},
                     {"reasoning_format", s->reasoning_format},
                     {"reasoning_format_found_by", found_names[s->reasoning_found]});
    json_put_bool(j, "prompt_opens_reasoning", s->prompt_reasons);
    JSON_PUT_STRINGS(j, {"shape", shape_names[s->shape]},
                     {"arguments", s->shape == CHAT_CONTENT_ONLY ? NULL : argument_names[s->arguments]});
    json_open(j, "markers");
    for (uint32_t m = 0; m < CHAT_MARKER_COUNT; m++)
        if (s->marker[m])
            json_put_string(j, marker_names[m], s->marker[m]);
    json_close(j);
}
