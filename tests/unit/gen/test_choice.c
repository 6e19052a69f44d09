/* test_choice.c - tokens of a stream become parts, in the order in which the model wrote them. */
#include "model_path.h"
#include "test.h"

#include "base/check.h"
#include "chat/chat_syntax.h"
#include "gen/choice.h"
#include "gen/gen.h"
#include "gen/gen_request.h"
#include "gen/request_memory.h"
#include "registry/registry.h"
#include "tokenizer/tokenizer.h"

#include <string.h>

#define IDS_MAX 200

struct scene {
    struct arena *arena;
    struct tokenizer *tokenizer;
    struct served_model model;
    struct chat_syntax syntax;
    struct gen_request request;
    struct gen gen;
    struct prompt_ids prompt;
    struct choice choice;
    struct buf seen; /* "T" a token, "R[...]" and so on; parts of one kind joined */
    enum reply_part_kind last;
    bool tokens; /* note tokens too */
    uint32_t streams;
};

static void give_stream(struct gen *g)
{
    CONTAINER(g, struct scene, gen)->streams--;
}

static const struct gen_host host = {.give_stream = give_stream};

static void see(void *arg, const struct reply_part *p)
{
    static const char *const names[] = {
        [PART_TOKEN] = "T", [PART_PROMPT_TOKEN] = "P", [PART_REASONING] = "R", [PART_TEXT] = "C",
        [PART_CALL] = "B",  [PART_ARGUMENTS] = "A",    [PART_CALL_END] = "E"};
    struct scene *s = arg;
    if (p->kind == PART_TOKEN || p->kind == PART_PROMPT_TOKEN) {
        if (s->tokens)
            buf_puts(&s->seen, names[p->kind]);
        return;
    }
    if (p->kind != s->last)
        buf_printf(&s->seen, "|%s:", names[p->kind]);
    s->last = p->kind;
    buf_put_slice(&s->seen, p->text);
}

static void begin(struct scene *s)
{
    struct err e = {0};
    struct arena_opts opts = {.bytes_max = (size_t)64 << 20};
    memset(s, 0, sizeof(*s));
    assert_int_equal(arena_create(&opts, &s->arena), 0);
    if (tokenizer_load_at(s->arena, PLATEAU_SOURCE_DIR "/models/canary", &s->tokenizer, &e) < 0)
        fail_msg("%s", e.text);
    const struct chat_syntax_opts syntax = {
        .tokenizer = s->tokenizer, .vocab = UINT32_MAX, .tool_format = "qwen3_xml"};
    assert_int_equal(chat_syntax_find(s->arena, s->arena, &syntax, &s->syntax, &e), 0);
    s->model = (struct served_model){.tokenizer = s->tokenizer, .syntax = &s->syntax};
    s->request = (struct gen_request){.parses = true,
                                      .parallel_tool_calls = true,
                                      .skip_special_tokens = true,
                                      .tools = json_array(),
                                      .n = 1,
                                      .sampling = {.prompt_logprobs = -1}};
    s->gen = (struct gen){.host = &host,
                          .request = &s->request,
                          .model = &s->model,
                          .prompts = &s->prompt,
                          .prompt_count = 1,
                          .choice_count = 1};
    request_memory_init(&s->gen.memory, NULL, SIZE_MAX / 4);
    s->last = PART_TOKEN;
    buf_init(&s->seen, 1 << 16, NULL);
}

/* The text's tokens, then the end. */
static void run(struct scene *s, const char *text, const struct stream_finish *finish)
{
    struct tokenizer_opts opts = {.added_tokens = true};
    struct stream_opts stream = {.id = request_id_new()};
    struct err e = {0};
    uint32_t ids[IDS_MAX];
    size_t count = 0;
    assert_int_equal(
        tokenizer_encode(s->tokenizer, s->arena, slice_of(text), &opts, ids, IDS_MAX, &count, &e), 0);
    choice_init(&s->choice, &s->gen, 0, 0);
    s->choice.sink = see;
    s->choice.sink_arg = s;
    assert_int_equal(choice_open(&s->choice), 0);
    assert_int_equal(stream_create(&stream, &s->choice.stream), 0);
    s->streams = 1;
    for (size_t i = 0; i < count; i++)
        assert_true(stream_put(s->choice.stream, &(struct stream_token){.id = ids[i]}));
    stream_finish(s->choice.stream, finish);
    stream_release(s->choice.stream);
    stream_wake_clear(s->choice.stream);
    assert_int_equal(choice_take(&s->choice, UINT32_MAX), count);
    assert_true(s->choice.over);
    assert_int_equal(s->choice.error, 0);
    assert_int_equal(s->choice.tokens, count);
    buf_putc(&s->seen, 0);
}

static void end(struct scene *s)
{
    choice_close(&s->choice);
    choice_close(&s->choice);
    assert_int_equal(s->streams, 0);
    request_memory_done(&s->gen.memory);
    json_decref(s->request.tools);
    buf_done(&s->seen);
    arena_free(s->arena);
}

static const struct stream_finish stopped = {.reason = FINISH_STOP};

TEST(parts_keep_the_order_of_reasoning_text_and_calls)
{
    struct scene s;
    begin(&s);
    run(&s,
        "<think>\nHm.\n</think>\n\nI look.\n\n<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n"
        "</function>\n</tool_call>\n<tool_call>\n<function=g>\n</function>\n</tool_call>",
        &stopped);
    assert_string_equal(s.seen.ptr, "|R:Hm.|C:I look.|B:f|A:{\"a\": \"1\"}|E:|B:g|A:{}|E:");
    assert_int_equal(s.choice.call_count, 2);
    end(&s);
}

TEST(one_call_only_where_the_client_wants_one)
{
    struct scene s;
    begin(&s);
    s.request.parallel_tool_calls = false;
    run(&s,
        "<tool_call>\n<function=f>\n</function>\n</tool_call>\n<tool_call>\n<function=g>\n</function>\n"
        "</tool_call>",
        &stopped);
    assert_string_equal(s.seen.ptr, "|B:f|A:{}|E:");
    assert_int_equal(s.choice.call_count, 1);
    end(&s);
}

TEST(a_reply_that_is_not_parsed_is_text)
{
    struct scene s;
    begin(&s);
    s.request.parses = false;
    run(&s, "a <function=f> b", &stopped);
    assert_string_equal(s.seen.ptr, "|C:a <function=f> b");
    end(&s);
}

TEST(each_token_comes_before_its_text)
{
    struct scene s;
    begin(&s);
    s.tokens = true;
    s.request.parses = false;
    run(&s, "x", &stopped);
    assert_string_equal(s.seen.ptr, "T|C:x");
    end(&s);
}

/* The engine decides that a stop string ends the sequence; its bytes and those after it are not text. */
TEST(text_ends_at_the_stop_string)
{
    static const struct stream_finish by_string = {
        .reason = FINISH_STOP, .stopped_by_string = true, .text_bytes = 4};
    for (int keep = 0; keep < 2; keep++) {
        struct scene s;
        struct slice string;
        uint32_t token;
        begin(&s);
        s.request.parses = false;
        s.request.include_stop = keep;
        s.request.stops[0] = SLICE("END");
        s.request.stop_count = 1;
        run(&s, "one END", &by_string);
        assert_string_equal(s.seen.ptr, keep ? "|C:one END" : "|C:one ");
        assert_true(choice_stopped_by(&s.choice, &string, &token));
        assert_true(slice_eq(string, SLICE("END")));
        end(&s);
    }
}

TEST(an_end_token_is_not_a_stop_of_the_client)
{
    struct scene s;
    struct slice string;
    uint32_t token;
    struct stream_finish by_token = {.reason = FINISH_STOP, .stop_token = 7};
    begin(&s);
    run(&s, "x", &by_token);
    assert_false(choice_stopped_by(&s.choice, &string, &token));
    s.request.stop_ids[s.request.stop_id_count++] = 7;
    assert_true(choice_stopped_by(&s.choice, &string, &token));
    assert_int_equal(token, 7);
    assert_int_equal(string.len, 0);
    end(&s);
}

TEST_MAIN()
