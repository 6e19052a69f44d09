/* test_tool_set.c - random histories of tools that come and go, against a replay without any state. */
#include "test.h"

#include "api/request/tool_set.h"
#include "base/check.h"
#include "base/rng.h"

#define NAMES   6 /* names of tools */
#define EVENTS  24
#define ABSENT  2 /* version of a tool that is not in force; versions are 0 and 1 */
#define RESTART NAMES

struct event {
    uint32_t name; /* RESTART: all messages before it leave */
    uint32_t version;
    const char *lead;
};

struct history {
    bool declared[NAMES], deferred[NAMES];
    struct event events[EVENTS];
};

static struct history draw(uint64_t seed)
{
    struct history h = {0};
    uint64_t at = 0;
    for (size_t i = 0; i < NAMES; i++) {
        h.declared[i] = rng_at(seed, at++) % 3 > 0;
        h.deferred[i] = rng_at(seed, at++) % 2;
    }
    for (size_t i = 0; i < EVENTS; i++) {
        bool restarts = rng_at(seed, at++) % 12 == 0;
        h.events[i].name = restarts ? RESTART : (uint32_t)(rng_at(seed, at++) % NAMES);
        h.events[i].version = (uint32_t)(rng_at(seed, at++) % 3);
        h.events[i].lead = rng_at(seed, at++) % 2 ? "More:\n" : NULL;
    }
    return h;
}

static json_t *tool_of(uint32_t name, uint32_t version)
{
    json_t *own = json_sprintf("t%u", name);
    json_t *tool = json_pack("{s:s, s:{s:o, s:i}}", "type", "function", "function", "name", own, "version",
                             (int)version);
    assert_non_null(tool);
    return tool;
}

static const json_t *in_force(const struct tool_set *s, uint32_t name)
{
    char own[8];
    snprintf(own, sizeof(own), "t%u", name);
    return json_object_get(s->force, own);
}

static void happen(struct tool_set *s, const struct event *e, json_t *parts)
{
    json_t *tool = tool_of(e->name, e->version);
    char own[8];
    snprintf(own, sizeof(own), "t%u", e->name);
    if (e->name == RESTART)
        assert_true(tool_set_restart(s));
    else if (e->version == ABSENT)
        assert_true(tool_set_take(s, own, parts));
    else
        assert_true(tool_set_bring(s, tool, e->lead, parts));
    json_decref(tool);
}

/* The first `count` events, one message each: a list of their parts. */
static json_t *play(const struct history *h, size_t count, struct tool_set *s)
{
    json_t *messages = json_array();
    assert_true(tool_set_init(s));
    for (uint32_t i = 0; i < NAMES; i++) {
        json_t *tool = tool_of(i, 0);
        assert_true(!h->declared[i] || tool_set_declare(s, tool, h->deferred[i]));
        json_decref(tool);
    }
    for (size_t i = 0; i < count; i++) {
        json_t *parts = json_array();
        happen(s, &h->events[i], parts);
        assert_int_equal(json_array_append_new(messages, parts), 0);
    }
    return messages;
}

/* Messages that the last restart leaves in the prompt begin here. */
static size_t begin_of(const struct history *h, size_t count)
{
    size_t from = count;
    while (from > 0 && h->events[from - 1].name != RESTART)
        from--;
    return from;
}

static uint32_t version_at_head(const struct history *h, uint32_t name)
{
    return h->declared[name] && !h->deferred[name] ? 0 : ABSENT;
}

static void check_force(const struct history *h, size_t count, const struct tool_set *s)
{
    for (uint32_t name = 0; name < NAMES; name++) {
        uint32_t want = version_at_head(h, name);
        for (size_t i = begin_of(h, count); i < count; i++)
            if (h->events[i].name == name)
                want = h->events[i].version;
        json_t *tool = tool_of(name, want);
        const json_t *got = in_force(s, name);
        assert_true(want == ABSENT ? !got : json_equal(got, tool) == 1);
        json_decref(tool);
    }
}

/* Walks the definitions in the prompt: the last one of a name is in force, and none follows its equal. */
static void check_definitions(const struct history *h, size_t count, const struct tool_set *s,
                              const json_t *messages)
{
    for (uint32_t name = 0; name < NAMES; name++) {
        json_t *last = version_at_head(h, name) == 0 ? tool_of(name, 0) : NULL, *part, *tool;
        size_t k, t;
        for (size_t i = begin_of(h, count); i < count; i++)
            json_array_foreach(json_array_get(messages, i), k, part)
                json_array_foreach(json_object_get(part, "tools"), t, tool) {
                    if (h->events[i].name != name)
                        continue;
                    assert_false(json_equal(last, tool));
                    json_decref(last);
                    last = json_incref(tool);
                }
        assert_true(!in_force(s, name) || json_equal(last, in_force(s, name)) == 1);
        json_decref(last);
    }
}

PROPERTY(the_prompt_has_each_tool_in_force_once_and_only_grows, seed)
{
    struct history h = draw(seed);
    struct tool_set whole, part;
    json_t *messages = play(&h, EVENTS, &whole);
    for (size_t count = 0; count <= EVENTS; count++) {
        json_t *head = play(&h, count, &part);
        for (size_t i = 0; i < count; i++)
            assert_true(json_equal(json_array_get(head, i), json_array_get(messages, i)));
        assert_true(json_equal(part.head, whole.head));
        check_force(&h, count, &part);
        check_definitions(&h, count, &part, head);
        tool_set_done(&part);
        json_decref(head);
    }
    tool_set_done(&whole);
    json_decref(messages);
}

TEST_MAIN()
