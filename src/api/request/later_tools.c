/* later_tools.c - a replay of the conversation's changes, and what the request's list has beside them.
 *
 * A turn whose list is that of the head, and the usual one, ends before any text is parsed. */
#include "api/request/later_tools.h"

#include "api/conversations.h"
#include "api/request/field.h"
#include "api/request/json_digest.h"
#include "api/request/tool_set.h"

#include "base/check.h"
#include "base/json/json_write.h"
#include "chat/chat_history.h"
#include "gen/request_memory.h"
#include "gen/tool_insert.h"

#define LATER_HEAD      "plateau:first_tools" /* owns the head in the body */
#define TEXTS_BYTES_MAX ((size_t)64 << 20)
#define SAME_PART       2 /* a list with less than this part of the tools in force begins anew */

static const char added[] = "More tools are available from here on:\n";

struct later {
    struct request *request;
    struct request_memory *memory;
    const struct later_tools_opts *opts;
    struct conversation_turn turn;
    struct conversation_past past;
    uint64_t *chain;  /* owned: turn.chain */
    struct buf texts; /* texts of `past` */
    struct buf own;   /* the request's own head, later its change */
    json_t *tools;    /* the request's list; borrowed; NULL: none */
    struct tool_set set;
    json_t *parts[CONVERSATIONS_CHANGES_MAX]; /* owned: what each change writes */
};

static const char *name_of(const json_t *tool)
{
    return field_string_in(json_object_get(tool, "function"), "name");
}

/* ---- the turn ---- */

/* Messages up to the first of a user begin the conversation. 0: there is none. */
static uint32_t begin_of(const json_t *messages)
{
    size_t i;
    const json_t *message;
    json_array_foreach(messages, i, message)
        if (chat_history_has_role(message, "user"))
            return (uint32_t)i + 1;
    return 0;
}

/* A last message that the reply continues is not one. */
static bool has_reply(const json_t *messages)
{
    size_t count = json_array_size(messages), i = 0;
    while (i + 1 < count && !chat_history_has_role(json_array_get(messages, i), "assistant"))
        i++;
    return i + 1 < count;
}

static uint64_t key_of(const struct later *l, uint32_t begin)
{
    const char *salt = l->request->gen.cache_salt;
    uint64_t key = json_digest_chain(l->opts->tenant, json_digest_text(slice_of(l->opts->model)));
    key = json_digest_chain(key, salt ? json_digest_text(slice_of(salt)) : 0);
    return json_digest_chain(key, l->chain[begin]);
}

/* Clients drop the reasoning of earlier turns: the chain goes without it. */
static bool read_turn(struct later *l, uint32_t begin)
{
    const json_t *messages = l->request->gen.messages, *message;
    size_t i, count = json_array_size(messages);
    l->chain = request_memory_alloc(l->memory, (count + 1) * sizeof(*l->chain));
    if (!l->chain)
        return false;
    l->chain[0] = 0;
    json_array_foreach(messages, i, message)
        l->chain[i + 1] = json_digest_chain(l->chain[i], json_digest_but(message, "reasoning_content"));
    l->turn = (struct conversation_turn){.key = key_of(l, begin),
                                         .tenant = l->opts->tenant,
                                         .tools = json_digest_set(l->tools),
                                         .chain = l->chain,
                                         .count = (uint32_t)count,
                                         .first = !has_reply(messages)};
    return true;
}

/* ---- changes ---- */

static json_t *parse(struct later *l, struct slice text)
{
    json_error_t e;
    return request_memory_parse(l->memory, text.ptr, text.len, &e);
}

/* Carries out a change and writes its parts: {"take": [names], "bring": [tools]}. */
static bool put_change(struct tool_set *s, const json_t *change, json_t *parts)
{
    const json_t *take = json_object_get(change, "take"), *bring = json_object_get(change, "bring");
    bool all = json_array_size(bring) == 0 && json_array_size(take) == json_object_size(s->force), ok = true;
    size_t i;
    json_t *each;
    if (all)
        return tool_set_take_all(s, parts);
    json_array_foreach(take, i, each)
        ok = ok && tool_set_take(s, json_string_value(each), parts);
    json_array_foreach(bring, i, each)
        ok = ok && tool_set_bring(s, each, added, parts);
    return ok;
}

/* An empty line between the message's own text and the first part: some templates join texts without one. */
static bool set_off(json_t *part)
{
    const char *member = json_object_get(part, "lead") ? "lead" : "text";
    json_t *text = json_sprintf("\n\n%s", json_string_value(json_object_get(part, member)));
    return text && json_object_set_new(part, member, text) == 0;
}

/* The content as a list of parts; borrowed, NULL: no memory. */
static json_t *list_of(json_t *message)
{
    json_t *content = json_object_get(message, "content");
    if (json_is_array(content))
        return content;
    json_t *list =
        json_string_length(content) > 0 ? json_pack("[o]", field_text_part(content)) : json_array();
    return list && json_object_set_new(message, "content", list) == 0 ? list : NULL;
}

/* The message's content has the parts at its end then. */
static bool append_parts(json_t *message, json_t *parts)
{
    json_t *list = list_of(message), *part;
    size_t i;
    bool ok = list && (json_array_size(list) == 0 || set_off(json_array_get(parts, 0)));
    json_array_foreach(parts, i, part)
        ok = ok && json_object_set_new(part, TOOL_INSERT_LATER, json_true()) == 0 &&
             json_array_append(list, part) == 0;
    return ok;
}

/* The tools of the head, and after all changes until now; l->parts has what each change writes. */
static bool replay(struct later *l)
{
    json_t *head = parse(l, l->past.head), *tool;
    size_t i;
    bool ok = head != NULL;
    json_array_foreach(head, i, tool)
        ok = ok && tool_set_declare(&l->set, tool, false);
    json_decref(head);
    for (uint32_t k = 0; ok && k < l->past.change_count; k++) {
        json_t *change = parse(l, l->past.changes[k].text);
        ok = change && put_change(&l->set, change, l->parts[k]);
        json_decref(change);
    }
    return ok;
}

/* From the tools in force to the request's list. */
struct difference {
    json_t *names;     /* owned: the request's tools by name */
    json_t *change;    /* owned: {"take", "bring"} */
    bool empty, whole; /* whole: the list has little of the tools in force */
};

static void difference_done(struct difference *d)
{
    json_decref(d->names);
    json_decref(d->change);
}

/* A tool that comes in place of another of its name is not taken away first. */
static bool find_difference(const struct later *l, struct difference *ret)
{
    json_t *take = json_array(), *bring = json_array(), *tool;
    const char *name;
    size_t i, same = 0;
    ret->names = json_object();
    ret->change = json_pack("{sOsO}", "take", take, "bring", bring);
    bool ok = ret->names && ret->change;
    json_array_foreach(l->tools, i, tool)
        ok = ok && json_object_set(ret->names, name_of(tool), tool) == 0;
    json_object_foreach(ret->names, name, tool) {
        bool had = json_equal(json_object_get(l->set.force, name), tool) == 1;
        same += had;
        ok = ok && (had || json_array_append(bring, tool) == 0);
    }
    json_object_foreach(l->set.force, name, tool)
        ok = ok && (json_object_get(ret->names, name) || json_array_append_new(take, json_string(name)) == 0);
    ret->empty = json_array_size(take) == 0 && json_array_size(bring) == 0;
    ret->whole = json_object_size(ret->names) > 0 && same * SAME_PART < json_object_size(l->set.force);
    json_decref(take);
    json_decref(bring);
    return ok;
}

/* The last message that is not a reply. */
static uint32_t place_of(const json_t *messages)
{
    size_t i = json_array_size(messages) - 1;
    while (chat_history_has_role(json_array_get(messages, i), "assistant"))
        i--;
    return (uint32_t)i;
}

/* One more change, at the end of this turn. */
static bool add_change(struct later *l, const json_t *change)
{
    buf_clear(&l->own);
    json_write_value(&l->own, change);
    l->past.changes[l->past.change_count] =
        (struct conversation_change){place_of(l->request->gen.messages), l->turn.tools, buf_slice(&l->own)};
    return !l->own.error && put_change(&l->set, change, l->parts[l->past.change_count++]);
}

/* True for a turn that lost the conversation's tools and ends with a text. Clients write their own summaries
 * so; the prompt before the text does not change. */
static bool is_compaction(const struct later *l)
{
    const json_t *messages = l->request->gen.messages;
    return json_array_size(l->tools) == 0 && json_array_size(l->set.head) > 0 && !l->turn.first &&
           chat_history_has_role(json_array_get(messages, json_array_size(messages) - 1), "user");
}

/* The last message's parts become one text, unless there is an image among them. */
static bool append_last(json_t *messages, bool *ret)
{
    json_t *last = json_array_get(messages, json_array_size(messages) - 1), *part;
    json_t *text = json_string(""), *content = json_object_get(last, "content");
    size_t i;
    *ret = true;
    json_array_foreach(content, i, part) {
        const char *own = json_string_value(json_object_get(part, "text"));
        json_t *more = own ? json_sprintf("%s%s", json_string_value(text), own) : json_incref(text);
        *ret = *ret && own;
        json_decref(text);
        text = more;
    }
    bool ok = text && (!*ret || !json_is_array(content) || json_object_set(last, "content", text) == 0);
    json_decref(text);
    return ok;
}

/* The request gets the head of its conversation, and the messages what later turns brought. */
static bool rewrite(struct later *l)
{
    struct gen_request *g = &l->request->gen;
    bool ok = json_object_set(l->request->root, LATER_HEAD, l->set.head) == 0;
    for (uint32_t k = 0; ok && k < l->past.change_count; k++)
        ok = append_parts(json_array_get(g->messages, l->past.changes[k].message), l->parts[k]);
    g->inserts_tools = true;
    g->head_tools = l->set.head;
    return ok && (!is_compaction(l) || append_last(g->messages, &g->appends));
}

/* ---- the way of a turn ---- */

/* The conversation begins with the request's own head. */
static void begin(struct later *l)
{
    l->past = (struct conversation_past){.tools = l->turn.tools, .head = buf_slice(&l->own)};
}

static bool go_on(struct later *l)
{
    struct difference d = {0};
    bool ok = replay(l) && find_difference(l, &d);
    bool anew = d.whole || (!d.empty && l->past.change_count == CONVERSATIONS_CHANGES_MAX);
    if (ok && anew)
        begin(l);
    else if (ok)
        ok = (d.empty || add_change(l, d.change)) && rewrite(l);
    difference_done(&d);
    return ok;
}

static bool place(struct later *l, uint64_t now_ns)
{
    struct conversations *c = l->opts->conversations;
    bool none = json_array_size(l->tools) == 0, ok = true;
    bool known = conversations_find(c, &l->turn, &l->texts, &l->past);
    if (l->texts.error || (none && !known))
        return !l->texts.error;
    if (none)
        buf_puts(&l->own, "[]");
    else
        json_write_value(&l->own, l->tools);
    if (l->own.error)
        return false;
    if (!known)
        begin(l);
    else if (l->past.change_count > 0 || !slice_eq(l->past.head, buf_slice(&l->own)))
        ok = go_on(l);
    if (ok && l->opts->keeps)
        conversations_put(c, &l->turn, &l->past, now_ns);
    return ok;
}

static bool init(struct later *l)
{
    struct charge charge = request_memory_charge(l->memory);
    bool ok = tool_set_init(&l->set);
    buf_init(&l->texts, TEXTS_BYTES_MAX, &charge);
    buf_init(&l->own, TEXTS_BYTES_MAX, &charge);
    for (size_t i = 0; i < COUNT_OF(l->parts); i++)
        ok = (l->parts[i] = json_array()) && ok;
    return ok;
}

static void done(struct later *l)
{
    tool_set_done(&l->set);
    buf_done(&l->texts);
    buf_done(&l->own);
    for (size_t i = 0; i < COUNT_OF(l->parts); i++)
        json_decref(l->parts[i]);
    request_memory_free(l->memory, l->chain, (l->turn.count + 1) * sizeof(*l->chain));
}

bool later_tools_insert(struct request *r, const struct later_tools_opts *opts, struct request_memory *memory,
                        uint64_t now_ns)
{
    struct later l = {.request = r, .memory = memory, .opts = opts, .tools = gen_head_tools(&r->gen)};
    uint32_t begin = begin_of(r->gen.messages);
    if (!opts->conversations || r->tools_off || r->gen.drops_turns || begin == 0)
        return true;
    struct request_memory *before = request_memory_enter(memory);
    bool ok = init(&l) && read_turn(&l, begin) && place(&l, now_ns);
    done(&l);
    request_memory_enter(before);
    return ok;
}
