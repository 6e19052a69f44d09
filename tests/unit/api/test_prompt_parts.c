/* test_prompt_parts.c - places in texts, and the earlier turn with which a turn is compared. */
#include "test_ledger.h"

#include "api/turns/prompt_parts.h"
#include "base/check.h"
#include "gen/gen_request.h"

#include <string.h>

static json_t *list_of(const char *text)
{
    json_t *ret = json_loads(text, 0, NULL);
    assert_non_null(ret);
    return ret;
}

/* A turn of a conversation; the request lives as long as it. */
struct scene {
    struct prompt_parts *parts;
    struct prompt_turn turn;
    struct prompt_loss loss;
    uint32_t ids[2048];
    uint64_t now_ns;
    json_t *media; /* sources of the next turn; NULL: none */
};

static void say(struct scene *s, uint64_t tenant, const char *model, const char *tools, const char *messages)
{
    struct gen_request r = {.tools = list_of(tools), .messages = list_of(messages), .media = s->media};
    prompt_turn_read(&r, tenant, model, &s->turn);
    prompt_parts_compare(s->parts, &s->turn, &r, &s->loss);
    prompt_turn_tokens(&s->turn, s->ids, COUNT_OF(s->ids));
    prompt_parts_match(s->parts, &s->turn, s->ids, &s->loss);
    prompt_parts_keep(s->parts, &s->turn, ++s->now_ns);
    json_decref(r.tools);
    json_decref(r.messages);
}

static struct scene begin(uint32_t entries)
{
    struct scene s = {.now_ns = 1};
    assert_int_equal(prompt_parts_create(NULL, entries, s.now_ns, &s.parts), 0);
    return s;
}

#define SYSTEM "{\"role\":\"system\",\"content\":\"You are careful with all files, and you say so.\"}"
#define ASK    "{\"role\":\"user\",\"content\":\"What is there?\"}"
#define REPLY                                                                                                \
    "{\"role\":\"assistant\",\"content\":\"Nothing is there. But look into the other folder, too.\"}"
#define TOOLS "[{\"name\":\"read\",\"description\":\"Reads a file of any length, line by line.\"}]"

#define LOOK "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"Look.\"},{\"type\":\"image\"}]}"

/* The messages have placeholders only. */
static void show(struct scene *s, const char *first, const char *second)
{
    s->media = json_pack("[{ss}{ss}]", "source", first, "source", second);
    assert_non_null(s->media);
    say(s, 1, "m", TOOLS, "[" SYSTEM "," LOOK "," REPLY "," LOOK "," REPLY "," ASK "]");
    json_decref(s->media);
    s->media = NULL;
}

TEST(another_image_is_named)
{
    struct scene s = begin(4);
    show(&s, "data:a", "data:b");
    show(&s, "data:a", "data:b");
    assert_true(s.loss.known);
    assert_string_equal(s.loss.part, "");
    show(&s, "data:a", "data:c");
    assert_string_equal(s.loss.part, "messages[3]");
    assert_string_equal(s.loss.difference.at, "content");
    assert_int_equal(s.loss.difference.within, 0);
    assert_int_equal(s.loss.side, PROMPT_SIDE_CLIENT);
    show(&s, "data:b", "data:c");
    assert_string_equal(s.loss.part, "messages[1]");
    prompt_parts_free(s.parts);
}

TEST(a_place_is_within_a_stride_of_the_change)
{
    struct scene s = begin(4);
    say(&s, 1, "m", TOOLS, "[" SYSTEM "," ASK "]");
    assert_false(s.loss.known);
    say(&s, 1, "m", TOOLS, "[" SYSTEM "," ASK "," REPLY "," ASK "]");
    assert_true(s.loss.known);
    assert_string_equal(s.loss.part, "");
    /* The text has more bytes than characters before the change. */
    say(&s, 1, "m", "[{\"name\":\"read\",\"description\":\"Reads a file of any length, line by ROW.\"}]",
        "[" SYSTEM "," ASK "," REPLY "," ASK "]");
    assert_string_equal(s.loss.part, "tools[0]");
    assert_string_equal(s.loss.difference.at, "description");
    assert_true(s.loss.difference.character <= 36 &&
                36 < s.loss.difference.character + s.loss.difference.within);
    assert_int_equal(s.loss.side, PROMPT_SIDE_CLIENT);
    prompt_parts_free(s.parts);
}

TEST(a_turn_is_compared_with_the_one_that_it_continues_best)
{
    struct scene s = begin(4);
    say(&s, 1, "m", "[]", "[" SYSTEM "," ASK "]");
    /* A subagent with the same first message, and another system. */
    say(&s, 1, "m", "[]", "[" ASK "]");
    assert_string_equal(s.loss.part, "system");
    say(&s, 1, "m", "[]", "[" ASK "," REPLY "," ASK "]");
    assert_string_equal(s.loss.part, "");
    say(&s, 1, "m", "[]", "[" SYSTEM "," ASK "," REPLY "," ASK "]");
    assert_string_equal(s.loss.part, "");
    say(&s, 1, "other", "[]", "[" SYSTEM "," ASK "," REPLY "," ASK "]");
    assert_string_equal(s.loss.part, "model");
    say(&s, 2, "m", "[]", "[" SYSTEM "," ASK "," REPLY "," ASK "]");
    assert_false(s.loss.known);
    prompt_parts_free(s.parts);
}

TEST(a_message_that_changes_is_named_as_the_prompt_has_it)
{
    struct scene s = begin(4);
    say(&s, 1, "m", "[]", "[" SYSTEM "," ASK "," REPLY "," ASK "]");
    say(&s, 1, "m", "[]", "[" SYSTEM "," ASK ",{\"role\":\"assistant\",\"content\":\"No.\"}," ASK "]");
    assert_string_equal(s.loss.part, "messages[2]");
    assert_string_equal(s.loss.difference.at, "content");
    assert_int_equal(s.loss.difference.character, 0);
    prompt_parts_free(s.parts);
}

TEST(the_table_never_grows_and_says_how_far_it_goes_back)
{
    struct scene s = begin(3);
    char ask[64];
    for (uint32_t i = 0; i < 20; i++) {
        snprintf(ask, sizeof(ask), "[{\"role\":\"user\",\"content\":\"Question %u\"}]", i);
        say(&s, 1, "m", "[]", ask);
        assert_false(s.loss.known);
    }
    struct prompt_parts_numbers n = prompt_parts_numbers(s.parts);
    assert_int_equal(n.entries, 3);
    assert_int_equal(n.evicted, 17);
    assert_true(s.loss.displaced && s.loss.since_ns > 1);
    assert_true(n.bytes <= 3 * 8192 + 8192);
    prompt_parts_free(s.parts);
}

TEST(an_agent_may_begin_anew)
{
    struct scene s = begin(4);
    struct gen_request r = {.messages = list_of("[" SYSTEM "," ASK "," REPLY "," ASK "]"), .agent = 5};
    prompt_turn_read(&r, 1, "m", &s.turn);
    prompt_turn_tokens(&s.turn, s.ids, 64);
    prompt_parts_keep(s.parts, &s.turn, 2);
    json_decref(r.messages);
    const struct {
        bool helper;
        uint64_t tenant, agent;
        bool anew;
    } cases[] = {{false, 1, 5, true},
                 {false, 1, 6, false},
                 {false, 2, 5, false},
                 {true, 1, 5, false},
                 {false, 1, 0, false}};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char text[1024];
        snprintf(text, sizeof(text),
                 "[%s,{\"role\":\"user\",\"content\":\"A summary %zu.\"}," REPLY "," ASK "]",
                 cases[i].helper ? "{\"role\":\"system\",\"content\":\"A helper.\"}" : SYSTEM, i);
        r = (struct gen_request){.messages = list_of(text), .agent = cases[i].agent};
        prompt_turn_read(&r, cases[i].tenant, "m", &s.turn);
        prompt_parts_match(s.parts, &s.turn, s.ids, &s.loss);
        assert_false(s.loss.known);
        assert_int_equal(s.loss.begins_anew, cases[i].anew);
        json_decref(r.messages);
    }
    prompt_parts_free(s.parts);
}

TEST(a_client_may_name_an_earlier_turn)
{
    struct scene s = begin(4);
    struct gen_request r = {.tools = NULL, .messages = list_of("[" ASK "]")};
    prompt_turn_read(&r, 1, "m", &s.turn);
    s.turn.id = 7;
    prompt_turn_tokens(&s.turn, s.ids, 64);
    prompt_parts_keep(s.parts, &s.turn, 2);
    for (uint64_t named = 7; named <= 8; named++) {
        s.turn.previous = named;
        prompt_parts_match(s.parts, &s.turn, s.ids, &s.loss);
        assert_true(s.loss.known && s.loss.named == (named == 7));
    }
    /* The turn that takes its place answers to its id. */
    s.turn.id = 9;
    s.turn.previous = 7;
    prompt_parts_keep(s.parts, &s.turn, 3);
    prompt_parts_match(s.parts, &s.turn, s.ids, &s.loss);
    assert_true(s.loss.named);
    json_decref(r.messages);
    prompt_parts_free(s.parts);
}

TEST_MAIN()
