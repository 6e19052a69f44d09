/* test_reply_frame.c - a grammar behind reasoning and inside the markers of a chat format. */
#include "test.h"

#include "base/check.h"
#include "chat/chat_syntax.h"
#include "constraint/grammar_source.h"
#include "gen/gen.h"
#include "gen/reply_frame.h"
#include "grammar/grammar.h"
#include "grammar/grammar_frame.h"
#include "grammar/matcher.h"

#include <string.h>

static struct chat_syntax syntax_of(const char *tools, const char *reasoning)
{
    struct chat_syntax s;
    struct err e = {0};
    if (chat_syntax_named(tools, reasoning, &s, &e) < 0)
        fail_msg("%s", e.text);
    return s;
}

static struct grammar *grammar_of(const struct grammar_frame *frame)
{
    const struct grammar_source source = {.kind = GRAMMAR_REGEX, .text = SLICE("[0-9]+"), .frame = frame};
    struct grammar *g = NULL;
    struct err e = {0};
    assert_false(frame->full);
    if (grammar_source_compile(&source, &(struct grammar_source_opts){0}, &g, &e) < 0)
        fail_msg("%s", e.text);
    return g;
}

/* Whether the text is complete. */
static bool has(struct grammar *g, const char *text)
{
    const struct matcher_tables_opts opts = {.grammar = g};
    struct matcher_tables *t;
    struct matcher *m;
    assert_int_equal(matcher_tables_create(&opts, &t), 0);
    assert_int_equal(matcher_create(&(struct matcher_opts){.tables = t}, &m), 0);
    bool ok = text[0] == 0 || matcher_take_bytes(m, slice_of(text)) == 1;
    ok = ok && matcher_may_end(m);
    matcher_free(m);
    matcher_tables_free(t);
    return ok;
}

static struct grammar *reply_grammar(const char *tools, const char *reasoning, bool in, bool may)
{
    struct chat_syntax s = syntax_of(tools, reasoning);
    const struct prompt_ids prompt = {.in_reasoning = in, .may_reason = may};
    struct grammar_frame frame;
    reply_frame_make(&s, &prompt, &frame);
    return grammar_of(&frame);
}

TEST(without_reasoning_the_grammar_is_the_reply)
{
    struct grammar *g = reply_grammar("hermes", "think", false, false);
    assert_true(has(g, "12"));
    assert_false(has(g, "<think>x</think>12"));
    assert_false(has(g, ""));
    grammar_free(g);
}

TEST(an_open_reasoning_is_closed_first)
{
    struct grammar *g = reply_grammar("hermes", "think", true, false);
    assert_true(has(g, "I think so.</think>12"));
    assert_true(has(g, "</think>12"));
    assert_true(has(g, "a < b, \"q\" </thin \xff </think>\n\n12"));
    assert_false(has(g, "12"));
    assert_false(has(g, "x</think>12</think>12"));
    assert_false(has(g, "x</think>no"));
    assert_false(has(g, "x</think>"));
    grammar_free(g);
}

TEST(a_reply_may_open_reasoning)
{
    struct grammar *g = reply_grammar("hermes", "think", false, true);
    assert_true(has(g, "12"));
    assert_true(has(g, "<think>\nx\n</think>\n\n12"));
    assert_false(has(g, "<think>12"));
    assert_false(has(g, "x</think>12"));
    grammar_free(g);
}

TEST(markers_around_content_may_be_left_out)
{
    struct grammar *g = reply_grammar("cohere", NULL, false, true);
    assert_true(has(g, "12"));
    assert_true(has(g, "<|START_THINKING|>x<|END_THINKING|><|START_RESPONSE|>12<|END_RESPONSE|>"));
    assert_true(has(g, "<|START_RESPONSE|>12"));
    assert_false(has(g, "<|START_RESPONSE|>x<|END_RESPONSE|>"));
    grammar_free(g);
}

TEST(channels_end_with_the_final_one)
{
    struct grammar *g = reply_grammar("harmony", NULL, false, false);
    assert_true(has(g, "<|channel|>final<|message|>12"));
    assert_true(has(g, "<|channel|>analysis<|message|>We need 5.<|end|><|start|>assistant<|channel|>final"
                       "<|message|>12"));
    assert_false(has(g, "12"));
    assert_false(has(g, "<|channel|>analysis<|message|>12"));
    grammar_free(g);
}

TEST(a_name_for_content_comes_first)
{
    struct grammar *g = reply_grammar("functionary_v3.2", NULL, false, false);
    assert_true(has(g, "all\n12"));
    assert_false(has(g, "12"));
    grammar_free(g);
}

/* Every format: the frame has room, and some text is complete. */
TEST(every_format_has_a_frame)
{
    for (uint32_t i = 0; chat_syntax_tool_name(i); i++)
        for (int in = 0; in < 2; in++)
            grammar_free(reply_grammar(chat_syntax_tool_name(i), NULL, in, !in));
}

enum { TOKENS = 260, CLOSE = 257, OTHER = 258, END = 259 };

static struct slice token_bytes(void *arg, uint32_t id)
{
    static char bytes[256];
    (void)arg;
    if (id >= 256)
        return (struct slice){0};
    bytes[id] = (char)id;
    return (struct slice){bytes + id, 1};
}

static bool take_text(struct matcher *m, const char *text)
{
    bool ok = true;
    for (; *text && ok; text++)
        ok = matcher_take(m, (unsigned char)*text) == 1;
    return ok;
}

/* A marker that is a token of the vocabulary is that token; its bytes are text. */
TEST(markers_are_matched_as_their_tokens)
{
    static const uint32_t ends[] = {END};
    const struct grammar_vocab_opts vocab_opts = {
        .size = TOKENS, .bytes = token_bytes, .ends = ends, .end_count = 1};
    struct chat_syntax s = syntax_of("hermes", "think");
    s.specials[s.special_count++] = (struct chat_special){.id = CLOSE, .text = SLICE("</think>")};
    const struct prompt_ids prompt = {.in_reasoning = true};
    struct grammar_frame frame;
    struct grammar_vocab *vocab;
    struct matcher_tables *t;
    struct matcher *m;
    uint32_t bits[DIV_UP(TOKENS, 32)];
    struct matcher_mask mask;
    reply_frame_make(&s, &prompt, &frame);
    struct grammar *g = grammar_of(&frame);
    assert_int_equal(grammar_vocab_create(&vocab_opts, &vocab), 0);
    assert_int_equal(matcher_tables_create(&(struct matcher_tables_opts){.grammar = g, .vocab = vocab}, &t),
                     0);
    assert_int_equal(matcher_create(&(struct matcher_opts){.tables = t}, &m), 0);
    assert_true(take_text(m, "x</think>12"));
    assert_int_equal(matcher_mask(m, 0, bits, &mask), 0);
    assert_int_equal(mask.count, 256 + 1); /* all text, and the marker */
    assert_int_equal(matcher_take(m, OTHER), 0);
    assert_int_equal(matcher_take(m, END), 0);
    assert_int_equal(matcher_take(m, CLOSE), 1);
    assert_false(take_text(m, "x"));
    assert_true(take_text(m, "\n7"));
    assert_int_equal(matcher_take(m, END), 1);
    assert_true(matcher_has_ended(m));
    matcher_free(m);
    matcher_tables_free(t);
    grammar_vocab_free(vocab);
    grammar_free(g);
}

TEST(frames_are_part_of_the_key)
{
    struct chat_syntax s = syntax_of("hermes", "think");
    struct grammar_frame frames[3] = {{.count = 0}};
    uint8_t keys[4][GRAMMAR_SOURCE_KEY_BYTES];
    reply_frame_make(&s, &(struct prompt_ids){.in_reasoning = true}, &frames[0]);
    reply_frame_make(&s, &(struct prompt_ids){.may_reason = true}, &frames[1]);
    for (int i = 0; i < 4; i++) {
        const struct grammar_source source = {GRAMMAR_REGEX, SLICE("a"), i < 3 ? &frames[i] : NULL};
        grammar_source_key(&source, keys[i]);
    }
    assert_memory_not_equal(keys[0], keys[1], sizeof(keys[0]));
    assert_memory_not_equal(keys[0], keys[2], sizeof(keys[0]));
    assert_memory_equal(keys[2], keys[3], sizeof(keys[0]));
}

TEST_MAIN()
