/* chat_probe.c - rendering with sentinels, and cutting out the text around them.
 *
 * Three renderings show a call: an assistant's message with content only, one with a call, and one with
 * two. Where the first two part, the call's markers begin; what they end with alike is the end of the turn.
 * The text between two calls separates the markers of one call from the markers of their section.
 * Templates take arguments as objects or as text, and empty content as "" or null: the first way that shows
 * the call counts. */
#include "chat/chat_probe.h"

#include "chat/chat_calls_text.h"
#include "chat/chat_syntax.h"
#include "chat/json_stream.h"

#include "base/buf.h"
#include "base/check.h"
#include "template/chat_template.h"

#define TEXT_BYTES_MAX  ((size_t)1 << 20)
#define PROBE_DEPTH_MAX 150 /* the thread that loads a model has a small stack */

#define CONTENT "\xce\xa9zqcontent"
#define REASON  "zqreason"
#define NAME_1  "zqname_one"
#define NAME_2  "zqname_two"
#define KEY_1   "zqkey_a"
#define KEY_2   "zqkey_b"
#define VALUE_1 "zqvalue"
#define VALUE_2 "987654321"
#define ID      "zqid12345"

struct probe {
    const struct chat_template *t;
    struct arena *a, *scratch;
    bool text_arguments, null_content, with_tools;
    struct buf content, one, two; /* the renderings; `two` is empty when the template takes one call only */
};

/* ---- rendering ---- */

static bool render(const struct chat_template *t, struct arena *scratch, json_t *messages,
                   const json_t *tools, json_t *kwargs, bool prompt, struct buf *ret)
{
    struct chat_template_limits limits = CHAT_TEMPLATE_LIMITS_DEFAULT;
    struct chat_template_input in = {.messages = messages,
                                     .tools = tools,
                                     .kwargs = kwargs,
                                     .add_generation_prompt = prompt,
                                     .bos_token = SLICE(""),
                                     .eos_token = SLICE("")};
    struct err e = {{0}};
    limits.steps_max = 2 * 1000 * 1000;
    limits.depth_max = PROBE_DEPTH_MAX;
    limits.output_bytes_max = TEXT_BYTES_MAX;
    buf_clear(ret);
    int r = messages ? chat_template_render_cuts(t, scratch, &in, &limits, ret, NULL, &e) : -1;
    json_decref(messages);
    return r == 0;
}

static json_t *user_message(void)
{
    return json_pack("{s:s, s:s}", "role", "user", "content", "zquser");
}

static json_t *call_of(const struct probe *p, const char *name)
{
    json_t *arguments = p->text_arguments
                            ? json_string("{\"" KEY_1 "\": \"" VALUE_1 "\", \"" KEY_2 "\": " VALUE_2 "}")
                            : json_pack("{s:s, s:I}", KEY_1, VALUE_1, KEY_2, (json_int_t)987654321);
    return json_pack("{s:s, s:s, s:{s:s, s:o}}", "id", ID, "type", "function", "function", "name", name,
                     "arguments", arguments);
}

static bool render_calls(const struct probe *p, uint32_t count, struct buf *ret)
{
    json_t *calls = json_array();
    for (uint32_t i = 0; i < count; i++)
        json_array_append_new(calls, call_of(p, i == 0 ? NAME_1 : NAME_2));
    json_t *message = count == 0
                          ? json_pack("{s:s, s:s}", "role", "assistant", "content", CONTENT)
                          : json_pack("{s:s, s:o, s:O}", "role", "assistant", "content",
                                      p->null_content ? json_null() : json_string(""), "tool_calls", calls);
    json_decref(calls);
    json_t *tools = p->with_tools ? json_pack("[{s:s, s:{s:s, s:s, s:{s:s, s:{}}}}]", "type", "function",
                                              "function", "name", "zqtool", "description", "none",
                                              "parameters", "type", "object", "properties")
                                  : NULL;
    json_t *messages = message ? json_pack("[o, o]", user_message(), message) : NULL;
    bool ok = render(p->t, p->scratch, messages, tools, NULL, false, ret);
    json_decref(tools);
    return ok;
}

static bool has(const struct buf *b, const char *text)
{
    return slice_find(buf_slice(b), slice_of(text), 0) != SIZE_MAX;
}

/* The first way of giving calls that the template shows whole. */
static bool render_all(struct probe *p)
{
    for (unsigned way = 0; way < 8; way++) {
        p->text_arguments = way & 1;
        p->null_content = way & 2;
        p->with_tools = way & 4;
        if (!render_calls(p, 0, &p->content) || !has(&p->content, CONTENT))
            continue;
        if (!render_calls(p, 1, &p->one) || !has(&p->one, NAME_1) || !has(&p->one, VALUE_1))
            continue;
        /* Text that was written as a JSON string of its own is not what the model writes. */
        if (has(&p->one, "\\\"" KEY_1))
            continue;
        if (!render_calls(p, 2, &p->two) || !has(&p->two, NAME_2))
            buf_clear(&p->two);
        return true;
    }
    return false;
}

/* ---- cutting ---- */

static struct slice cut(struct slice s, size_t from, size_t to)
{
    return to > from ? slice_sub(s, from, to - from) : (struct slice){s.ptr, 0};
}

static struct slice trim(struct slice s)
{
    return slice_trim(s, SLICE_BLANKS);
}

static size_t common_head(struct slice a, struct slice b)
{
    size_t n = 0;
    while (n < a.len && n < b.len && a.ptr[n] == b.ptr[n])
        n++;
    return n;
}

static size_t common_tail(struct slice a, struct slice b)
{
    size_t n = 0;
    while (n < a.len && n < b.len && a.ptr[a.len - 1 - n] == b.ptr[b.len - 1 - n])
        n++;
    return n;
}

static size_t find_last_byte(struct slice s, char c)
{
    for (size_t at = s.len; at-- > 0;)
        if (s.ptr[at] == c)
            return at;
    return SIZE_MAX;
}

/* Where the last tag of `s` begins; SIZE_MAX: it has none. */
static size_t last_tag(struct slice s)
{
    size_t angle = find_last_byte(s, '<'), square = find_last_byte(s, '[');
    if (angle == SIZE_MAX || square == SIZE_MAX)
        return MIN_OF(angle, square);
    return MAX_OF(angle, square);
}

/* The tail of `s` of at most `len` bytes that begins at a tag; empty: there is none. */
static struct slice tag_tail(struct slice s, size_t len)
{
    ASSERT(len <= s.len);
    struct slice tail = slice_sub(s, s.len - len, len);
    for (size_t i = 0; i < tail.len; i++)
        if (tail.ptr[i] == '<' || tail.ptr[i] == '[')
            return slice_sub(tail, i, tail.len);
    return (struct slice){s.ptr + s.len, 0};
}

/* The head of `s` of at most `len` bytes that ends with a tag. */
static struct slice tag_head(struct slice s, size_t len)
{
    ASSERT(len <= s.len);
    while (len > 0 && s.ptr[len - 1] != '>' && s.ptr[len - 1] != ']')
        len--;
    return slice_sub(s, 0, len);
}

/* `from`, or the start of the tag around it. */
static size_t before_tag(struct slice s, size_t from)
{
    ASSERT(from <= s.len);
    size_t open = find_last_byte(slice_sub(s, 0, from), '<');
    size_t close = find_last_byte(slice_sub(s, 0, from), '>');
    bool inside = open != SIZE_MAX && (close == SIZE_MAX || close < open) && from - open < 64;
    return inside ? open : from;
}

/* The end of the JSON value that begins at `from`. */
static size_t json_end(struct slice s, size_t from)
{
    ASSERT(from <= s.len);
    struct json_stream scan;
    struct buf shown;
    json_stream_init(&scan, TEXT_BYTES_MAX, NULL);
    buf_init(&shown, TEXT_BYTES_MAX, NULL);
    size_t n = json_stream_feed(&scan, slice_sub(s, from, s.len), &shown);
    bool ok = scan.done && !scan.broken;
    json_stream_done(&scan);
    buf_done(&shown);
    return ok ? from + n : SIZE_MAX;
}

/* NULL for an empty text, and for one that is too long to be a marker (*ok is cleared). */
static const char *keep(struct probe *p, struct slice s, bool *ok)
{
    if (s.len > CHAT_MARKER_BYTES_MAX)
        *ok = false;
    if (s.len == 0 || !*ok)
        return NULL;
    const char *text = arena_strndup(p->a, s.ptr, s.len);
    *ok = text != NULL;
    return text;
}

/* Places in the rendering of one call. */
struct findings {
    struct slice s;         /* the rendering */
    size_t head, name, end; /* where markers, name, and what ends the turn begin */
    size_t over;            /* end of the arguments */
    struct slice between;   /* from there to the name of the second call; empty: unknown */
};

static bool find_call(struct probe *p, struct findings *ret)
{
    struct slice one = buf_slice(&p->one), plain = buf_slice(&p->content);
    size_t at = slice_find(plain, SLICE(CONTENT), 0);
    size_t head = before_tag(one, MIN_OF(common_head(one, plain), at));
    struct slice plain_tail = slice_sub(plain, at + sizeof(CONTENT) - 1, plain.len);
    *ret = (struct findings){.s = one, .head = head};
    ret->name = slice_find(one, SLICE(NAME_1), head);
    if (ret->name == SIZE_MAX)
        return false;
    size_t same = common_tail(slice_sub(one, ret->name, one.len), plain_tail);
    ASSERT(same <= one.len - ret->name);
    /* The end of a turn begins with a marker. */
    struct slice tail = tag_tail(one, same);
    ret->end = one.len - (tail.len ? tail.len : same);
    if (tail.len == same || tail.len == 0)
        ret->end = one.len - same;
    return true;
}

/* The markers of one call and of the section around all. */
static bool split_section(struct probe *p, const struct findings *f, struct slice head, struct slice tail,
                          struct chat_syntax *ret)
{
    bool ok = true;
    struct slice call = head, section = {head.ptr, 0}, end = tail, section_end = {tail.ptr, 0};
    struct slice between = f->between;
    size_t tag = last_tag(head);
    bool own =
        between.len && slice_starts(trim(between), trim(tail)) && slice_ends(trim(between), trim(head));
    if (between.len && !own) {
        call = tag_tail(head, common_tail(head, between));
        section = slice_sub(head, 0, head.len - call.len);
        end = tag_head(tail, common_head(tail, between));
        section_end = slice_sub(tail, end.len, tail.len);
        ASSERT(section.len + call.len == head.len && end.len + section_end.len == tail.len);
    } else if (tag != SIZE_MAX && trim(slice_sub(head, 0, tag)).len) {
        size_t first = slice_find(tail, SLICE(">"), 0);
        if (first != SIZE_MAX && trim(slice_sub(tail, first + 1, tail.len)).len) {
            call = slice_sub(head, tag, head.len);
            section = slice_sub(head, 0, tag);
            end = slice_sub(tail, 0, first + 1);
            section_end = slice_sub(tail, first + 1, tail.len);
        }
    }
    if (!trim(section).len)
        section_end.len = 0;
    ret->marker[CHAT_SECTION_BEGIN] = trim(section).len ? keep(p, section, &ok) : NULL;
    ret->marker[CHAT_CALL_BEGIN] = keep(p, call, &ok);
    ret->marker[CHAT_CALL_END] = trim(end).len ? keep(p, end, &ok) : NULL;
    ret->marker[CHAT_SECTION_END] = trim(section_end).len ? keep(p, section_end, &ok) : NULL;
    return ok && trim(call).len > 0;
}

/* ---- JSON ---- */

/* The key in `"KEY": ` at the end of `s`, before an opening quote where `quoted`; empty: there is none. */
static struct slice key_at_end(struct slice s, bool quoted)
{
    if (quoted && !slice_ends(s, SLICE("\"")))
        return (struct slice){0};
    s.len -= quoted;
    s = trim(s);
    if (!slice_ends(s, SLICE(":")))
        return (struct slice){0};
    s.len--;
    s = trim(s);
    if (!slice_ends(s, SLICE("\"")))
        return (struct slice){0};
    s.len--;
    size_t from = find_last_byte(s, '"');
    return from == SIZE_MAX ? (struct slice){0} : slice_sub(s, from + 1, s.len);
}

/* Name and arguments inside an object that begins in the head, at `open`. */
static bool read_object(struct probe *p, const struct findings *f, size_t open, size_t arguments,
                        struct chat_syntax *ret)
{
    bool ok = true;
    ASSERT(f->head <= open && open < f->name && f->name <= f->end);
    struct slice name_key = key_at_end(cut(f->s, open, f->name), true);
    struct slice arguments_key = key_at_end(cut(f->s, f->name, arguments), false);
    size_t end = json_end(f->s, open);
    if (end == SIZE_MAX || end > f->end)
        return false;
    ret->arguments = CHAT_JSON_CALL;
    if (name_key.len) {
        ret->name_key = keep(p, name_key, &ok);
        ret->arguments_key = keep(p, arguments_key, &ok);
        ok = ok && ret->arguments_key;
    } else {
        ok = slice_eq(trim(cut(f->s, open, f->name)), SLICE("{\""));
    }
    struct slice head = cut(f->s, f->head, open), tail = cut(f->s, end, f->end);
    ret->list = slice_ends(trim(head), SLICE("["));
    if (ret->list) {
        head.len = find_last_byte(head, '[');
        size_t close = slice_find(tail, SLICE("]"), 0);
        tail = close == SIZE_MAX ? tail : slice_sub(tail, close + 1, tail.len);
    }
    ret->bare = trim(head).len == 0;
    ret->marker[CHAT_SECTION_BEGIN] = ret->bare ? NULL : keep(p, head, &ok);
    ret->marker[CHAT_SECTION_END] = ret->bare || !trim(tail).len ? NULL : keep(p, tail, &ok);
    if (ret->bare && chat_template_mentions(p->t, SLICE("<|python_tag|>")))
        ret->marker[CHAT_SECTION_BEGIN] = "<|python_tag|>";
    return ok;
}

static struct slice between_json(struct probe *p, size_t from)
{
    struct slice two = buf_slice(&p->two);
    size_t key = slice_find(two, SLICE(KEY_1), from);
    size_t open = key == SIZE_MAX ? SIZE_MAX : find_last_byte(slice_sub(two, 0, key), '{');
    size_t end = open == SIZE_MAX ? SIZE_MAX : json_end(two, open);
    size_t name = end == SIZE_MAX ? SIZE_MAX : slice_find(two, SLICE(NAME_2), end);
    return name == SIZE_MAX ? (struct slice){0} : cut(two, end, name);
}

static bool read_json(struct probe *p, struct findings *f, size_t key, struct chat_syntax *ret)
{
    size_t open = find_last_byte(slice_sub(f->s, 0, key), '{');
    size_t name_end = f->name + sizeof(NAME_1) - 1;
    size_t object = find_last_byte(slice_sub(f->s, 0, f->name), '{');
    bool ok = true;
    if (open == SIZE_MAX || open < name_end)
        return false;
    if (object != SIZE_MAX && object >= f->head && f->s.ptr[f->name - 1] == '"')
        return read_object(p, f, object, open, ret);
    f->over = json_end(f->s, open);
    if (f->over == SIZE_MAX || f->over > f->end)
        return false;
    struct slice name = cut(f->s, name_end, open);
    size_t id = slice_find(name, SLICE(ID), 0);
    if (id != SIZE_MAX) {
        ret->marker[CHAT_ID_BEGIN] = keep(p, slice_sub(name, 0, id), &ok);
        name = slice_sub(name, id + sizeof(ID) - 1, name.len);
    }
    ret->arguments = CHAT_JSON;
    ret->marker[CHAT_NAME_END] = keep(p, name, &ok);
    f->between = between_json(p, f->head);
    return ok && ret->marker[CHAT_NAME_END] &&
           split_section(p, f, cut(f->s, f->head, f->name), cut(f->s, f->over, f->end), ret);
}

/* ---- tags ---- */

static bool read_key_end(struct probe *p, struct slice text, struct slice number, struct chat_syntax *ret)
{
    bool ok = true;
    if (!slice_eq(text, number)) {
        ret->marker[CHAT_KEY_END] = keep(p, text, &ok);
        ret->marker[CHAT_KEY_END_JSON] = keep(p, number, &ok);
        return ok && text.len && number.len;
    }
    size_t close = slice_find(text, SLICE(">"), 0);
    size_t len = close == SIZE_MAX ? text.len : close + 1;
    ASSERT(len <= text.len);
    ret->marker[CHAT_KEY_END] = keep(p, slice_sub(text, 0, len), &ok);
    ret->marker[CHAT_VALUE_BEGIN] = keep(p, slice_sub(text, len, text.len), &ok);
    return ok && ret->marker[CHAT_KEY_END];
}

static bool read_tags(struct probe *p, struct findings *f, size_t key_1, struct chat_syntax *ret)
{
    struct slice s = f->s;
    bool ok = true;
    size_t value_1 = slice_find(s, SLICE(VALUE_1), key_1), key_2 = slice_find(s, SLICE(KEY_2), key_1);
    size_t value_2 = slice_find(s, SLICE(VALUE_2), key_1);
    if (value_1 == SIZE_MAX || key_2 == SIZE_MAX || value_2 == SIZE_MAX || key_2 < value_1 || value_2 < key_2)
        return false;
    size_t value_over = value_1 + sizeof(VALUE_1) - 1;
    struct slice first = cut(s, f->name + sizeof(NAME_1) - 1, key_1), next = cut(s, value_over, key_2);
    struct slice key_begin = tag_tail(first, common_tail(first, next));
    struct slice value_end = slice_sub(next, 0, next.len - key_begin.len);
    struct slice rest = cut(s, value_2 + sizeof(VALUE_2) - 1, f->end);
    if (!key_begin.len || !trim(value_end).len || !slice_starts(rest, trim(value_end)) ||
        value_2 + sizeof(VALUE_2) - 1 > f->end) {
        if (!slice_starts(trim(rest), trim(value_end)) || !key_begin.len || !trim(value_end).len)
            return false;
    }
    ret->arguments = CHAT_TAGGED;
    ret->marker[CHAT_KEY_BEGIN] = keep(p, key_begin, &ok);
    ret->marker[CHAT_NAME_END] = keep(p, slice_sub(first, 0, first.len - key_begin.len), &ok);
    ret->marker[CHAT_VALUE_END] = keep(p, value_end, &ok);
    if (!ok || !read_key_end(p, cut(s, key_1 + sizeof(KEY_1) - 1, value_1),
                             cut(s, key_2 + sizeof(KEY_2) - 1, value_2), ret))
        return false;
    size_t skip = MIN_OF(value_end.len, rest.len);
    struct slice two = buf_slice(&p->two);
    size_t at = slice_find(two, SLICE(VALUE_2), f->head), name = slice_find(two, SLICE(NAME_2), f->head);
    if (at != SIZE_MAX && name != SIZE_MAX && at < name)
        f->between = cut(two, at + sizeof(VALUE_2) - 1 + skip, name);
    return split_section(p, f, cut(s, f->head, f->name), slice_sub(rest, skip, rest.len), ret);
}

/* ---- the whole ---- */

static bool read_call(struct probe *p, struct chat_syntax *ret)
{
    struct findings f;
    if (!find_call(p, &f))
        return false;
    size_t key = slice_find(f.s, SLICE(KEY_1), f.name);
    if (key == SIZE_MAX)
        return false;
    ASSERT(key > f.name);
    bool json = f.s.ptr[key - 1] == '"' &&
                slice_starts(slice_sub(f.s, key + sizeof(KEY_1) - 1, 1), SLICE("\"")) &&
                slice_starts(trim(slice_sub(f.s, key + sizeof(KEY_1), f.s.len)), SLICE(":"));
    ret->shape = CHAT_CALLS;
    return json ? read_json(p, &f, key, ret) : read_tags(p, &f, key, ret);
}

static void begin(struct probe *p)
{
    buf_init(&p->content, TEXT_BYTES_MAX, NULL);
    buf_init(&p->one, TEXT_BYTES_MAX, NULL);
    buf_init(&p->two, TEXT_BYTES_MAX, NULL);
}

static void end(struct probe *p)
{
    buf_done(&p->content);
    buf_done(&p->one);
    buf_done(&p->two);
}

bool chat_probe_tools(const struct chat_template *t, struct arena *a, struct arena *scratch,
                      struct chat_syntax *ret)
{
    struct probe p = {.t = t, .a = a, .scratch = scratch};
    struct chat_syntax found = {.shape = CHAT_CONTENT_ONLY};
    begin(&p);
    bool ok = render_all(&p) && read_call(&p, &found);
    end(&p);
    if (ok)
        *ret = found;
    return ok;
}

/* Where templates look for earlier reasoning, the most usual place first. */
static const char *const members[] = {"reasoning_content", "reasoning", "thinking"};

/* A message with content and reasoning, into p->one. */
static bool render_reasoning(struct probe *p, const char *member)
{
    json_t *message = json_pack("{s:s, s:s, s:s}", "role", "assistant", "content", CONTENT, member, REASON);
    return render(p->t, p->scratch, json_pack("[o, o]", user_message(), message), NULL, NULL, false, &p->one);
}

/* A template that refuses a message with calls may show some in another way. */
static bool shows_calls(struct probe *p)
{
    p->with_tools = true;
    p->text_arguments = p->null_content = false;
    return !render_calls(p, 1, &p->one) || has(&p->one, NAME_1);
}

/* The template itself writes the marker of text in front of all content. */
static bool is_inside_text(const struct chat_syntax *s, struct slice rendering, size_t at)
{
    ASSERT(at <= rendering.len);
    struct slice mark = trim(slice_of(s->marker[CHAT_TEXT_BEGIN]));
    return mark.len && slice_ends(trim(slice_sub(rendering, 0, at)), mark);
}

/* The template passes on reasoning that stands in the content: before a call, or of an earlier turn. */
static bool passes_reasoning(struct probe *p, const struct chat_syntax *s, bool with_call)
{
    struct buf text;
    buf_init(&text, TEXT_BYTES_MAX, NULL);
    buf_printf(&text, "%s" REASON "%s" CONTENT, s->marker[CHAT_REASONING_OPEN],
               s->marker[CHAT_REASONING_CLOSE]);
    json_t *message = json_pack("{s:s, s:s%}", "role", "assistant", "content", text.ptr, text.len);
    json_t *messages = json_pack("[o, o]", user_message(), message);
    if (messages && with_call)
        json_object_set_new(message, "tool_calls", json_pack("[o]", call_of(p, NAME_1)));
    else if (messages)
        json_array_append_new(messages, user_message());
    bool ok = render(p->t, p->scratch, messages, NULL, NULL, false, &p->one);
    size_t at = ok ? slice_find(buf_slice(&p->one), buf_slice(&text), 0) : SIZE_MAX;
    buf_done(&text);
    return at != SIZE_MAX && !is_inside_text(s, buf_slice(&p->one), at) &&
           (!with_call || has(&p->one, NAME_1));
}

/* The template writes markers without reasoning before content. */
static bool writes_empty_reasoning(struct probe *p, const struct chat_syntax *s)
{
    bool ok = render_calls(p, 0, &p->content);
    struct slice text = buf_slice(&p->content);
    size_t at = slice_find(text, SLICE(CONTENT), 0);
    return !ok || at == SIZE_MAX ||
           slice_ends(trim(slice_sub(text, 0, at)), trim(slice_of(s->marker[CHAT_REASONING_CLOSE])));
}

static void probe_reasoning_in_content(struct probe *p, struct chat_syntax *ret)
{
    bool marked = ret->marker[CHAT_REASONING_OPEN] && ret->marker[CHAT_REASONING_CLOSE];
    ret->reasoning_in_content = marked && ret->shape != CHAT_CHANNELS && !writes_empty_reasoning(p, ret) &&
                                passes_reasoning(p, ret, false);
    ret->reasoning_in_calls =
        ret->reasoning_in_content && (ret->calls_in_content || passes_reasoning(p, ret, true));
}

static json_t *message_of(const char *role, const char *content)
{
    return json_pack("{s:s, s:s}", "role", role, "content", content);
}

/* True: the texts stand in this order, each once. NULL ends them. */
static bool has_in_order(const struct buf *b, const char *const *texts)
{
    size_t at = 0;
    for (; *texts; texts++) {
        struct slice text = slice_of(*texts);
        size_t found = slice_find(buf_slice(b), text, 0);
        if (found == SIZE_MAX || found < at || slice_find(buf_slice(b), text, found + 1) != SIZE_MAX)
            return false;
        at = found;
    }
    return true;
}

/* Before and after the assistant's turn, with and without a first message of the system. */
static bool keeps_system(struct probe *p)
{
    static const char *const first[] = {"zqhead", "zquser", "zqlate", CONTENT, "zqmore", NULL};
    static const char *const later[] = {"zquser", CONTENT, "zqlate", "zqmore", NULL};
    json_t *a = json_pack("[o, o, o, o, o]", message_of("system", "zqhead"), user_message(),
                          message_of("system", "zqlate"), message_of("assistant", CONTENT),
                          message_of("user", "zqmore"));
    json_t *b = json_pack("[o, o, o, o]", user_message(), message_of("assistant", CONTENT),
                          message_of("system", "zqlate"), message_of("user", "zqmore"));
    bool ok = render(p->t, p->scratch, a, NULL, NULL, true, &p->one) && has_in_order(&p->one, first);
    return render(p->t, p->scratch, b, NULL, NULL, true, &p->one) && ok && has_in_order(&p->one, later);
}

/* Returns the text that a template that reads lists of parts writes between two texts. NULL: it reads
 * none. */
static const char *between_parts(struct probe *p)
{
    static const char *const some[] = {"", "\n", " ", "\n\n"};
    json_t *content = json_pack("[{s:s, s:s}, {s:s, s:s}]", "type", "text", "text", "zqone", "type", "text",
                                "text", "zqtwo");
    json_t *message = json_pack("{s:s, s:o}", "role", "user", "content", content);
    if (!render(p->t, p->scratch, json_pack("[o]", message), NULL, NULL, false, &p->one))
        return NULL;
    size_t from = slice_find(buf_slice(&p->one), SLICE("zqone"), 0);
    size_t to = slice_find(buf_slice(&p->one), SLICE("zqtwo"), 0);
    if (from == SIZE_MAX || to == SIZE_MAX)
        return NULL;
    struct slice between = cut(buf_slice(&p->one), from + strlen("zqone"), to);
    for (size_t i = 0; i < COUNT_OF(some); i++)
        if (slice_eq(between, slice_of(some[i])))
            return some[i];
    return NULL;
}

void chat_probe_history(const struct chat_template *t, struct arena *scratch, struct chat_syntax *ret)
{
    struct probe p = {.t = t, .scratch = scratch};
    begin(&p);
    if (render_all(&p)) {
        ret->text_arguments = p.text_arguments;
        ret->null_content = p.null_content;
    } else {
        ret->calls_in_content =
            ret->generic || (has(&p.content, CONTENT) && chat_calls_text_knows(ret) && !shows_calls(&p));
    }
    bool reads = false;
    for (size_t i = 0; i < COUNT_OF(members) && !reads; i++) {
        reads = render_reasoning(&p, members[i]) && has(&p.one, REASON);
        ret->reasoning_member = reads && i > 0 ? members[i] : NULL;
    }
    if (!reads)
        probe_reasoning_in_content(&p, ret);
    ret->system_in_place = keeps_system(&p);
    ret->between_parts = between_parts(&p);
    end(&p);
}

bool chat_probe_reasoning(const struct chat_template *t, struct arena *a, struct arena *scratch,
                          struct chat_syntax *ret)
{
    struct probe p = {.t = t, .a = a, .scratch = scratch};
    bool found = false;
    begin(&p);
    for (size_t i = 0; i < COUNT_OF(members) && !found; i++) {
        if (!render_calls(&p, 0, &p.content) || !render_reasoning(&p, members[i]))
            continue;
        struct slice s = buf_slice(&p.one);
        size_t from = before_tag(s, common_head(s, buf_slice(&p.content)));
        size_t at = slice_find(s, SLICE(REASON), from), content = slice_find(s, SLICE(CONTENT), from);
        bool ok = true;
        if (at == SIZE_MAX || content == SIZE_MAX || content < at)
            continue;
        struct slice open = cut(s, from, at), close = cut(s, at + sizeof(REASON) - 1, content);
        if (!trim(open).len || !trim(close).len)
            continue;
        ret->marker[CHAT_REASONING_OPEN] = keep(&p, open, &ok);
        ret->marker[CHAT_REASONING_CLOSE] = keep(&p, close, &ok);
        found = ok;
    }
    end(&p);
    return found;
}

bool chat_probe_prompt(const struct chat_template *t, struct arena *scratch, const json_t *tools,
                       struct buf *ret)
{
    return render(t, scratch, json_pack("[o]", user_message()), tools, NULL, true, ret);
}
