/* test_api_request.c - bodies to checked values, or to the sentence that refuses them. */
#include "test_parsed.h"

#include "api/reject_http.h"
#include "api/request/field.h"
#include "api/request/request.h"
#include "api/request/utility_form.h"
#include "api/wire/wire.h"
#include "base/check.h"
#include "chat/chat_format.h"
#include "gen/json_depth.h"
#include "gen/request_memory.h"

#include <math.h>

static const struct request_limits limits = {
    .json_depth_max = 16, .choices_max = 8, .texts_max = 8, .elsewhere = wire_has_elsewhere};

static struct parsed *parse_slice(const struct request_form *form, struct slice body)
{
    return test_parse(form, body, &limits);
}

static struct parsed *parse(const struct request_form *form, const char *body)
{
    return parse_slice(form, slice_of(body));
}

static struct parsed *accept(const struct request_form *form, const char *body)
{
    struct parsed *p = parse(form, body);
    if (!p->ok)
        fail_msg("%s: refused: %s", body, p->why.message);
    assert_int_equal(reject_status(&p->why), 0);
    return p;
}

static void refuse(const struct request_form *form, const char *body, unsigned status, const char *param,
                   const char *says)
{
    struct parsed *p = parse(form, body);
    if (p->ok)
        fail_msg("accepted: %s", body);
    assert_int_equal(reject_status(&p->why), status);
    assert_string_equal(p->why.param, param);
    if (!strstr(p->why.message, says))
        fail_msg("%s: says \"%s\", not \"%s\"", body, p->why.message, says);
    done(p);
}

#define USER       "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"
#define CHAT(more) "{" USER "," more "}"

/* A chat with one more field is refused, with this field's name and these words. */
static void refuse_field(const char *field, const char *param, const char *says)
{
    char body[512];
    snprintf(body, sizeof(body), "{%s,%s}", USER, field);
    refuse(&wire_chat.form, body, 400, param, says);
}

TEST(defaults_are_left_to_the_model)
{
    struct parsed *p = accept(&wire_chat.form, "{" USER "}");
    const struct request *r = &p->request;
    assert_true(isnan(r->gen.sampling.temperature) && isnan(r->gen.sampling.top_p) &&
                isnan(r->gen.sampling.min_p));
    assert_int_equal(r->gen.sampling.max_tokens, -1);
    assert_int_equal(r->gen.sampling.top_k, -1);
    assert_int_equal(r->gen.n, 1);
    assert_false(r->stream);
    assert_null(r->model);
    assert_int_equal(r->gen.enable_thinking, -1);
    assert_string_equal(r->ignored, "");
    done(p);
}

TEST(every_field_arrives)
{
    struct parsed *p = accept(
        &wire_chat.form,
        CHAT(
            "\"model\":\"m\",\"temperature\":0.5,\"top_p\":0.9,\"top_k\":40,\"min_p\":0.1,\"repetition_"
            "penalty\":1.1,"
            "\"presence_penalty\":-1,\"frequency_penalty\":2,\"seed\":-7,\"n\":3,\"max_completion_tokens\":5,"
            "\"min_tokens\":2,\"stop\":[\"a\",\"bc\"],\"stop_token_ids\":[1,2],\"ignore_eos\":true,"
            "\"stream\":true,"
            "\"stream_options\":{\"include_usage\":true},\"logprobs\":true,\"top_logprobs\":4,"
            "\"return_token_ids\":true,\"logit_bias\":{\"5\":-100,\"7\":1.5},\"priority\":-3,\"cache_salt\":"
            "\"s\","
            "\"user\":\"u\",\"metadata\":{},\"chat_template_kwargs\":{\"x\":1},\"reasoning_effort\":\"low\","
            "\"parallel_tool_calls\":false,\"enable_thinking\":false"));
    const struct request *r = &p->request;
    assert_string_equal(r->model, "m");
    assert_float_equal(r->gen.sampling.temperature, 0.5, 0);
    assert_float_equal(r->gen.sampling.top_p, 0.9, 0);
    assert_int_equal(r->gen.sampling.top_k, 40);
    assert_float_equal(r->gen.sampling.min_p, 0.1, 0);
    assert_float_equal(r->gen.sampling.repetition_penalty, 1.1, 0);
    assert_float_equal(r->gen.sampling.presence_penalty, -1, 0);
    assert_float_equal(r->gen.sampling.frequency_penalty, 2, 0);
    assert_true(r->gen.sampling.has_seed);
    assert_int_equal(r->gen.sampling.seed, -7);
    assert_int_equal(r->gen.n, 3);
    assert_int_equal(r->gen.sampling.max_tokens, 5);
    assert_int_equal(r->gen.sampling.min_tokens, 2);
    assert_int_equal(r->gen.stop_count, 2);
    assert_true(slice_eq(r->gen.stops[1], SLICE("bc")));
    assert_int_equal(r->gen.stop_id_count, 2);
    assert_int_equal(r->gen.stop_ids[1], 2);
    assert_true(r->gen.ignore_eos && r->stream && r->include_usage && r->gen.sampling.logprobs &&
                r->return_token_ids);
    assert_int_equal(r->gen.sampling.top_logprobs, 4);
    assert_int_equal(json_object_size(r->gen.logit_bias), 2);
    assert_int_equal(r->gen.priority, -3);
    assert_string_equal(r->gen.cache_salt, "s");
    assert_int_equal(json_object_size(r->gen.template_kwargs), 1);
    assert_string_equal(r->gen.reasoning_effort, "low");
    assert_false(r->gen.parallel_tool_calls);
    assert_int_equal(r->gen.enable_thinking, 0);
    done(p);
}

TEST(null_counts_as_absent_everywhere)
{
    done(accept(
        &wire_chat.form,
        CHAT("\"temperature\":null,\"stop\":null,\"tools\":null,\"functions\":null,\"seed\":null,\"n\":null,"
             "\"response_format\":null,\"stream_options\":null,\"guided_json\":null,\"logit_bias\":null,"
             "\"model\":null,\"anything\":null")));
}

TEST(numbers_have_bounds_and_say_them)
{
    refuse_field("\"temperature\":2.1", "temperature", "from 0 to 2");
    refuse_field("\"temperature\":-0.1", "temperature", "from 0 to 2");
    refuse_field("\"temperature\":\"1\"", "temperature", "must be a number");
    refuse_field("\"top_p\":0", "top_p", "to 1");
    refuse_field("\"min_p\":1", "min_p", "from 0");
    refuse_field("\"top_k\":-2", "top_k", "switch it off");
    refuse_field("\"top_k\":1.5", "top_k", "integer");
    refuse_field("\"presence_penalty\":3", "presence_penalty", "from -2 to 2");
    refuse_field("\"repetition_penalty\":0", "repetition_penalty", "from 0.01");
    refuse_field("\"n\":0", "n", "positive");
    refuse_field("\"n\":9", "n", "the limit is 8");
    refuse_field("\"max_tokens\":0", "max_tokens", "at least 1");
    refuse_field("\"max_tokens\":true", "max_tokens", "integer");
    refuse_field("\"max_tokens\":3,\"max_completion_tokens\":4", "max_completion_tokens", "the same");
    refuse_field("\"max_tokens\":3,\"min_tokens\":4", "min_tokens", "more than max_tokens");
    refuse_field("\"logprobs\":true,\"top_logprobs\":21", "top_logprobs", "from 0 to 20");
    refuse_field("\"top_logprobs\":2", "top_logprobs", "needs logprobs");
    refuse_field("\"logprobs\":5", "logprobs", "top_logprobs");
    refuse_field("\"logit_bias\":{\"x\":1}", "logit_bias", "not a token id");
    refuse_field("\"logit_bias\":{\"1\":101}", "logit_bias", "from -100 to 100");
    refuse_field("\"priority\":5000", "priority", "-1000");
    refuse_field("\"seed\":1e300", "seed", "64 bits");
    refuse_field("\"stop\":\"\"", "stop", "1 to 256");
    refuse_field("\"stop\":[1]", "stop", "string");
    refuse_field("\"stop_token_ids\":[-1]", "stop_token_ids", "token id");
    refuse_field("\"cache_salt\":\"\"", "cache_salt", "empty");
    refuse_field("\"stream_options\":{\"include_usage\":true}", "stream_options", "stream is true");
    refuse_field("\"stream\":true,\"prompt_logprobs\":1", "prompt_logprobs", "stream");
    refuse_field("\"skip_special_tokens\":false,\"stop\":\"x\"", "skip_special_tokens", "stop_token_ids");
}

TEST(a_float_that_is_whole_is_an_integer)
{
    struct parsed *p = accept(&wire_chat.form, CHAT("\"max_tokens\":5.0,\"seed\":3.0,\"top_k\":-1"));
    assert_int_equal(p->request.gen.sampling.max_tokens, 5);
    assert_int_equal(p->request.gen.sampling.seed, 3);
    assert_int_equal(p->request.gen.sampling.top_k, 0);
    done(p);
}

TEST(top_k_may_be_any_large_number)
{
    struct parsed *p = accept(&wire_chat.form, CHAT("\"top_k\":9223372036854775807"));
    assert_int_equal(p->request.gen.sampling.top_k, REQUEST_TOKENS_MAX);
    done(p);
}

TEST(what_is_known_and_not_done_is_refused)
{
    static const char *const refused[][2] = {
        {"\"echo\":true", "echo"},
        {"\"structured_outputs\":{\"other\":1}", "structured_outputs"},
        {"\"structured_outputs\":{\"json\":{},\"disable_additional_properties\":true}",
         "structured_outputs.disable_additional_properties"},
        {"\"response_format\":{\"type\":\"grammar\"}", "response_format.type"},
        {"\"guided_choice\":[\"a\"],\"allowed_token_ids\":[1]", "allowed_token_ids"},
        {"\"use_beam_search\":true", "use_beam_search"},
        {"\"best_of\":2", "best_of"},
        {"\"functions\":[]", "functions"},
        {"\"function_call\":\"auto\"", "function_call"},
        {"\"modalities\":[\"text\",\"audio\"]", "modalities"},
        {"\"audio\":{}", "audio"},
        {"\"continue_final_message\":true", "continue_final_message"},
        {"\"bad_words\":[\"x\"]", "bad_words"},
        {"\"chat_template\":\"x\"", "chat_template"},
        {"\"prompt\":\"x\"", "prompt"},
        {"\"suffix\":\"x\"", "suffix"},
    };
    for (size_t i = 0; i < COUNT_OF(refused); i++)
        refuse_field(refused[i][0], refused[i][1], "");
}

TEST(what_asks_for_nothing_is_accepted)
{
    done(accept(&wire_chat.form,
                CHAT("\"echo\":false,\"store\":false,\"best_of\":2,\"n\":2,\"service_tier\":\"auto\","
                     "\"modalities\":[\"text\"],\"response_format\":{\"type\":\"text\"},"
                     "\"tool_choice\":\"auto\",\"length_penalty\":1.0,\"use_beam_search\":false,"
                     "\"verbosity\":\"medium\",\"allowed_token_ids\":[]")));
}

/* The field, and what x-ignored-fields has. */
static void ignores(const struct request_form *form, const char *body, const char *listed)
{
    struct parsed *p = accept(form, body);
    assert_string_equal(p->request.ignored, listed);
    done(p);
}

TEST(words_that_advise_may_be_unknown)
{
    static const char *const advice[][2] = {
        {"\"service_tier\":\"flex\"", "service_tier"},
        {"\"service_tier\":\"default\"", ""},
        {"\"verbosity\":\"loud\"", "verbosity"},
        {"\"reasoning_effort\":\"enormous\"", "reasoning_effort"},
        {"\"prediction\":{\"type\":\"content\",\"content\":\"x\"}", "prediction"},
        {"\"request_id\":\"x\"", "request_id"},
        {"\"stream\":true,\"stream_options\":{\"include_obfuscation\":true}",
         "stream_options.include_obfuscation"},
        {"\"stream\":true,\"stream_options\":{\"include_obfuscation\":false,\"include_usage\":true}", ""},
        {"\"stream\":true,\"stream_options\":{\"pace\":\"slow\"}", "stream_options.pace"},
    };
    for (size_t i = 0; i < COUNT_OF(advice); i++) {
        char body[256];
        snprintf(body, sizeof(body), "{%s,%s}", USER, advice[i][0]);
        ignores(&wire_chat.form, body, advice[i][1]);
    }
    struct parsed *p = accept(&wire_chat.form, CHAT("\"reasoning_effort\":\"enormous\""));
    assert_null(p->request.gen.reasoning_effort);
    done(p);
    refuse_field("\"reasoning_effort\":3", "reasoning_effort", "string");
    refuse_field("\"service_tier\":3", "service_tier", "string");
    refuse_field("\"verbosity\":3", "verbosity", "string");
}

TEST(unknown_names_are_listed)
{
    struct parsed *p = accept(&wire_chat.form, CHAT("\"temprature\":1,\"x y\":2,\"zz\":{}"));
    assert_string_equal(p->request.ignored, "temprature, zz");
    done(p);
}

TEST(json_that_is_none_is_refused)
{
    refuse(&wire_chat.form, "", 400, "", "no body");
    refuse(&wire_chat.form, "{", 400, "", "not valid JSON");
    refuse(&wire_chat.form, "[]", 400, "", "must be a JSON object");
    refuse(&wire_chat.form, "{\"messages\":[],\"messages\":[]}", 400, "", "not valid JSON");
    refuse(&wire_chat.form, "{\"a\":\"\xff\"}", 400, "", "not valid JSON");
    refuse(&wire_chat.form, "{\"a\":[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]}", 400, "", "deeper than 16");
}

TEST(a_prompt_may_hold_a_zero_byte_and_a_name_may_not)
{
    struct parsed *p = accept(&wire_completion.form, "{\"prompt\":\"a\\u0000b\"}");
    assert_int_equal(json_string_length(p->request.gen.prompt), 3);
    done(p);
    refuse(&wire_completion.form, "{\"prompt\":\"a\",\"model\":\"m\\u0000\"}", 400, "model", "zero byte");
}

TEST(depth_looks_outside_of_strings)
{
    assert_true(json_depth_within(SLICE("[[[]]]"), 3));
    assert_false(json_depth_within(SLICE("[[[]]]"), 2));
    assert_true(json_depth_within(SLICE("[\"[[[[\",\"\\\"[[[\"]"), 1));
    assert_true(json_depth_within(SLICE("[]{}[]{}[]"), 1));
    assert_true(json_depth_within(SLICE("]]]]["), 1));
    /* Bytes after the text are not part of it. */
    assert_true(json_depth_within((struct slice){"[[", 1}, 1));
}

/* ---- prompts ---- */

TEST(prompts_come_in_four_forms)
{
    struct parsed *p = accept(&wire_completion.form, "{\"prompt\":\"a\"}");
    assert_int_equal(p->request.gen.prompt_count, 1);
    done(p);
    p = accept(&wire_completion.form, "{\"prompt\":[1,2,3]}");
    assert_int_equal(p->request.gen.prompt_count, 1);
    done(p);
    p = accept(&wire_completion.form, "{\"prompt\":[\"a\",\"b\"],\"n\":4}");
    assert_int_equal(p->request.gen.prompt_count, 2);
    done(p);
    p = accept(&wire_completion.form, "{\"prompt\":[[1],[2,3],\"c\"]}");
    assert_int_equal(p->request.gen.prompt_count, 3);
    done(p);
}

TEST(prompts_that_are_none_are_refused)
{
    refuse(&wire_completion.form, "{}", 400, "prompt", "missing");
    refuse(&wire_completion.form, "{\"prompt\":[]}", 400, "prompt", "must be");
    refuse(&wire_completion.form, "{\"prompt\":5}", 400, "prompt", "must be");
    refuse(&wire_completion.form, "{\"prompt\":[1,\"a\"]}", 400, "prompt", "prompt[1]");
    refuse(&wire_completion.form, "{\"prompt\":[[]]}", 400, "prompt", "at least one token");
    refuse(&wire_completion.form, "{\"prompt\":\"\"}", 400, "prompt", "prompt is empty");
    refuse(&wire_completion.form, "{\"prompt\":[]}", 400, "prompt", "prompt is empty");
    refuse(&wire_completion.form, "{\"prompt\":[\"a\",\"\"]}", 400, "prompt", "prompt[1] is empty");
    refuse(&wire_completion.form, "{\"prompt\":[[1],[-1]]}", 400, "prompt", "token id");
    refuse(&wire_completion.form, "{\"prompt\":[\"a\",\"b\",\"c\"],\"n\":3}", 400, "n", "9 choices");
    refuse(&wire_completion.form, "{\"prompt\":\"a\",\"messages\":[]}", 400, "messages",
           "not a field of this route");
}

TEST(completions_have_logprobs_as_a_number)
{
    struct parsed *p = accept(&wire_completion.form, "{\"prompt\":\"a\",\"logprobs\":0}");
    assert_true(p->request.gen.sampling.logprobs);
    assert_int_equal(p->request.gen.sampling.top_logprobs, 0);
    done(p);
    refuse(&wire_completion.form, "{\"prompt\":\"a\",\"logprobs\":true}", 400, "logprobs", "integer");
    refuse(&wire_completion.form, "{\"prompt\":\"a\",\"logprobs\":21}", 400, "logprobs", "0 to 20");
}

/* ---- messages ---- */

static const json_t *message(const struct parsed *p, size_t index)
{
    return json_array_get(p->request.gen.messages, index);
}

static const char *text_of(const json_t *object, const char *key)
{
    const char *s = json_string_value(json_object_get(object, key));
    return s ? s : "(none)";
}

TEST(history_becomes_what_templates_expect)
{
    struct parsed *p =
        accept(&wire_chat.form,
               "{\"messages\":[{\"role\":\"developer\",\"content\":\"d\"},"
               "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"text\","
               "\"text\":\"b\"}]},"
               "{\"role\":\"assistant\",\"content\":null,\"reasoning\":\"why\",\"refusal\":null,\"tool_"
               "calls\":[{\"id\":\"1\","
               "\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"x\\\": 1}\"}},"
               "{\"id\":\"2\",\"type\":\"function\",\"function\":{\"name\":\"g\",\"arguments\":\"\"}}]},"
               "{\"role\":\"tool\",\"tool_call_id\":\"1\",\"content\":\"r\"}]}");
    assert_string_equal(text_of(message(p, 0), "role"), "system");
    const json_t *parts = json_object_get(message(p, 1), "content");
    assert_int_equal(json_array_size(parts), 2);
    assert_string_equal(text_of(json_array_get(parts, 0), "text"), "a");
    assert_string_equal(text_of(json_array_get(parts, 1), "text"), "b");
    assert_string_equal(text_of(message(p, 2), "content"), "");
    assert_string_equal(text_of(message(p, 2), "reasoning_content"), "why");
    assert_null(json_object_get(message(p, 2), "reasoning"));
    const json_t *calls = json_object_get(message(p, 2), "tool_calls");
    const json_t *first = json_object_get(json_object_get(json_array_get(calls, 0), "function"), "arguments");
    assert_int_equal(json_integer_value(json_object_get(first, "x")), 1);
    const json_t *second =
        json_object_get(json_object_get(json_array_get(calls, 1), "function"), "arguments");
    assert_true(json_is_object(second) && json_object_size(second) == 0);
    done(p);
}

static void refuse_message(const char *m, const char *param, const char *says)
{
    char body[512];
    snprintf(body, sizeof(body), "{\"messages\":[%s]}", m);
    refuse(&wire_chat.form, body, 400, param, says);
}

/* ---- images and videos ---- */

static void take_media(const char *part, enum media_kind kind, const char *source, double fps)
{
    char body[512];
    snprintf(body, sizeof(body),
             "{\"messages\":[{\"role\":\"user\",\"content\":[\"a\",%s,{\"type\":\"text\",\"text\":\"b\"}]}]}",
             part);
    struct parsed *p = accept(&wire_chat.form, body);
    assert_int_equal(gen_media_count(&p->request.gen), 1);
    struct media_input m = gen_media_input(&p->request.gen, 0);
    assert_int_equal(m.kind, kind);
    assert_string_equal(m.at, "messages[0].content[1]");
    json_t *expected = json_loads(source, JSON_DECODE_ANY, NULL);
    assert_int_equal(m.listed, json_is_array(expected));
    assert_int_equal(m.url_count, m.listed ? json_array_size(expected) : 1);
    for (uint32_t i = 0; i < m.url_count; i++) {
        const json_t *url = m.listed ? json_array_get(expected, i) : expected;
        assert_string_equal(m.url(m.owner, i).ptr, json_string_value(url));
        assert_int_equal(m.url(m.owner, i).len, json_string_length(url));
    }
    json_decref(expected);
    assert_true(isnan(fps) ? isnan(m.fps) : m.fps == fps);
    const json_t *content = json_object_get(json_array_get(p->request.gen.messages, 0), "content");
    assert_int_equal(json_array_size(content), 3);
    assert_string_equal(json_string_value(json_object_get(json_array_get(content, 0), "text")), "a");
    assert_string_equal(json_string_value(json_object_get(json_array_get(content, 1), "type")),
                        kind == MEDIA_VIDEO ? "video" : "image");
    assert_int_equal(json_object_size(json_array_get(content, 1)), 1);
    gen_media_drop(&p->request.gen);
    assert_null(gen_media_input(&p->request.gen, 0).owner);
    assert_int_equal(gen_media_count(&p->request.gen), 1);
    done(p);
}

TEST(images_are_taken_in_every_form_that_clients_write)
{
    take_media("{\"type\":\"image_url\",\"image_url\":{\"url\":\"u\",\"detail\":\"high\"}}", MEDIA_IMAGE,
               "\"u\"", NAN);
    take_media("{\"type\":\"image_url\",\"image_url\":\"u\"}", MEDIA_IMAGE, "\"u\"", NAN);
    take_media("{\"type\":\"input_image\",\"image_url\":\"u\",\"detail\":null}", MEDIA_IMAGE, "\"u\"", NAN);
    take_media("{\"type\":\"image\",\"image\":\"u\"}", MEDIA_IMAGE, "\"u\"", NAN);
    take_media("{\"type\":\"image\",\"url\":\"u\"}", MEDIA_IMAGE, "\"u\"", NAN);
    take_media("{\"type\":\"video_url\",\"video_url\":{\"url\":\"u\",\"fps\":4}}", MEDIA_VIDEO, "\"u\"", 4);
    take_media("{\"type\":\"video\",\"video\":\"u\",\"fps\":0.5}", MEDIA_VIDEO, "\"u\"", 0.5);
    take_media("{\"type\":\"video\",\"video\":[\"u\",{\"url\":\"v\"}],\"sample_fps\":2}", MEDIA_VIDEO,
               "[\"u\",\"v\"]", 2);
    take_media(
        "{\"type\":\"image_url\",\"image_url\":{\"url\":\"u\",\"format\":\"image/png\"},\"uuid\":\"1\","
        "\"cache_control\":{},\"crop\":null}",
        MEDIA_IMAGE, "\"u\"", NAN);
}

static void refuse_part(const char *part, const char *says)
{
    char message[512];
    snprintf(message, sizeof(message), "{\"role\":\"user\",\"content\":[%s]}", part);
    refuse_message(message, "messages[0].content[0]", says);
}

TEST(images_that_are_none_are_refused)
{
    refuse_part("{\"type\":\"image_url\"}", "URL");
    refuse_part("{\"type\":\"image_url\",\"image_url\":5}", "URL");
    refuse_part("{\"type\":\"image_url\",\"image_url\":{\"url\":\"\"}}", "URL");
    refuse_part("{\"type\":\"image_url\",\"image_url\":[\"u\"]}", "URL");
    refuse_part("{\"type\":\"image_url\",\"image_url\":{\"url\":\"u\",\"detail\":3}}", "detail");
    refuse_part("{\"type\":\"image\",\"image\":\"u\",\"min_pixels\":4}", "min_pixels");
    refuse_part("{\"type\":\"input_image\",\"file_id\":\"x\"}", "file_id");
    refuse_part("{\"type\":\"image\",\"image\":\"u\",\"crop\":[]}", "crop");
    refuse_part("{\"type\":\"image\",\"image\":{\"url\":\"u\",\"crop\":1}}", "crop");
    refuse_part("{\"type\":\"image\",\"image\":\"u\",\"fps\":1}", "fps");
    refuse_part("{\"type\":\"image\",\"image\":\"u\",\"url\":\"v\"}", "more than one URL");
    refuse_part("{\"type\":\"video\",\"video\":\"u\",\"image\":\"v\"}", "image");
    refuse_part("{\"type\":\"video\",\"video\":\"u\",\"num_frames\":8}", "num_frames");
    refuse_part("{\"type\":\"video\",\"video\":[]}", "URL");
    refuse_part("{\"type\":\"video\",\"video\":[\"u\",7]}", "frame 1");
    refuse_part("{\"type\":\"video\",\"video\":\"u\",\"fps\":0}", "fps");
    refuse_part("{\"type\":\"video\",\"video\":\"u\",\"fps\":\"2\"}", "fps");
    refuse_message("{\"role\":\"user\",\"content\":[{\"type\":\"image\",\"image\":\"u\"},5]}",
                   "messages[0].content[1]", "must be a part of type");
}

/* The model wrote them, and agents send them back. */
TEST(arguments_that_are_no_object_stay_text)
{
    static const char *const texts[] = {"{", "[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]", "twelve", "[1]"};
    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        char body[400];
        snprintf(
            body, sizeof(body),
            "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"assistant\",\"tool_calls\":["
            "{\"function\":{\"name\":\"f\",\"arguments\":\"%s\"}}]}]}",
            texts[i]);
        struct parsed *p = accept(&wire_chat.form, body);
        const json_t *call =
            json_array_get(json_object_get(json_array_get(p->request.gen.messages, 1), "tool_calls"), 0);
        const json_t *arguments = json_object_get(json_object_get(call, "function"), "arguments");
        assert_string_equal(json_string_value(arguments), texts[i]);
        done(p);
    }
}

TEST(messages_that_are_none_are_refused)
{
    refuse(&wire_chat.form, "{}", 400, "messages", "missing");
    refuse(&wire_chat.form, "{\"messages\":[]}", 400, "messages", "at least one");
    refuse_message("5", "messages[0]", "must be an object");
    refuse_message("{}", "messages[0]", "role is missing");
    refuse_message("{\"role\":\"robot\",\"content\":\"x\"}", "messages[0]", "role must be");
    refuse_message("{\"role\":\"user\"}", "messages[0]", "content is missing");
    refuse_message("{\"role\":\"user\",\"content\":5}", "messages[0]", "string or a list");
    refuse_message("{\"role\":\"user\",\"content\":[{\"type\":\"input_audio\"}]}", "messages[0].content[0]",
                   "must be a part of type");
    refuse_message("{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{}}]}", "messages[0]", "name");
    refuse_message("{\"role\":\"assistant\",\"content\":\"x\",\"function_call\":{}}", "function_call",
                   "not supported");
}

#define TWO                                                                                                  \
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}},{\"type\":\"function\",\"function\":{" \
    "\"name\":\"g\"}}],"
#define NAMED(name) "{\"type\":\"function\",\"function\":{\"name\":\"" name "\"}}"

TEST(tool_choice_says_which_calls_come)
{
    struct parsed *p = accept(&wire_chat.form, CHAT(TWO "\"tool_choice\":\"required\""));
    assert_true(p->request.gen.calls.required && !p->request.gen.calls.names);
    assert_true(gen_repeats_calls(&p->request.gen));
    done(p);
    p = accept(&wire_chat.form, CHAT(TWO "\"tool_choice\":" NAMED("g")));
    assert_true(p->request.gen.calls.required && !gen_repeats_calls(&p->request.gen));
    assert_int_equal(json_object_size(p->request.gen.calls.names), 1);
    done(p);
    p = accept(&wire_chat.form, CHAT(TWO "\"tool_choice\":{\"type\":\"allowed_tools\",\"allowed_tools\":{"
                                         "\"mode\":\"auto\",\"tools\":[" NAMED("f") "," NAMED("g") "]}}"));
    assert_true(!p->request.gen.calls.required && gen_repeats_calls(&p->request.gen));
    assert_int_equal(json_object_size(p->request.gen.calls.names), 2);
    done(p);
    refuse(&wire_chat.form, CHAT(TWO "\"tool_choice\":" NAMED("h")), 400, "tool_choice", "\"h\"");
    refuse(&wire_chat.form, CHAT("\"tool_choice\":\"required\""), 400, "tool_choice", "no tools");
    refuse(&wire_chat.form, CHAT(TWO "\"tool_choice\":{\"type\":\"function\"}"), 400, "tool_choice", "name");
    refuse(&wire_chat.form,
           CHAT(TWO "\"tool_choice\":{\"type\":\"allowed_tools\",\"allowed_tools\":{\"mode\":"
                    "\"auto\"}}"),
           400, "tool_choice", "list");
}

TEST(strict_tools_and_store_are_taken)
{
    struct parsed *p = accept(
        &wire_chat.form, CHAT("\"store\":true,\"tools\":[{\"type\":\"function\",\"function\":{\"name\":"
                              "\"f\",\"strict\":true}},{\"type\":\"function\",\"function\":{\"name\":\"g\","
                              "\"strict\":true}}]"));
    assert_int_equal(json_array_size(p->request.gen.tools), 2);
    assert_string_equal(p->request.ignored, "store");
    assert_int_equal(json_object_size(p->request.gen.calls.strict), 2);
    done(p);
}

TEST(a_prompt_can_be_echoed_scored_and_truncated)
{
    struct parsed *p =
        accept(&wire_completion.form, "{\"prompt\":\"a\",\"echo\":true,\"logprobs\":1,\"max_tokens\":0,"
                                      "\"truncate_prompt_tokens\":5,\"truncation_side\":\"right\","
                                      "\"allowed_token_ids\":[1,2]}");
    const struct request *r = &p->request;
    assert_true(r->echo && r->echo_logprobs && r->echo_logprobs_only && r->gen.prompt_only);
    assert_int_equal(r->gen.sampling.prompt_logprobs, 1);
    assert_int_equal(r->gen.truncate, 5);
    assert_true(r->gen.truncates_right);
    assert_int_equal(gen_bias_count(&r->gen), 2);
    done(p);
    refuse(&wire_completion.form, "{\"prompt\":\"a\",\"max_tokens\":0}", 400, "max_tokens", "echo");
    refuse(&wire_completion.form, "{\"prompt\":\"a\",\"echo\":true,\"logprobs\":1,\"stream\":true}", 400,
           "echo", "stream");
    refuse_field("\"truncate_prompt_tokens\":0", "truncate_prompt_tokens", "at least 1");
    refuse_field("\"truncation_side\":\"both\"", "truncation_side", "left");
    refuse_field("\"allowed_token_ids\":[-1]", "allowed_token_ids", "token id");
}

TEST(tools_are_checked_and_none_hides_them)
{
    struct parsed *p =
        accept(&wire_chat.form,
               CHAT("\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"strict\":false}}]"));
    assert_int_equal(json_array_size(p->request.gen.tools), 1);
    done(p);
    p = accept(
        &wire_chat.form,
        CHAT("\"tool_choice\":\"none\",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]"));
    assert_null(p->request.gen.tools);
    done(p);
    refuse_field("\"tools\":{}", "tools", "list");
    refuse_field("\"tools\":[{\"type\":\"x\"}]", "tools[0]", "type");
    refuse_field("\"tools\":[{\"type\":\"function\",\"function\":{}}]", "tools[0]", "name");
    refuse_field("\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":5}}]",
                 "tools[0]", "schema");
}

/* ---- memory ---- */

/* Twenty thousand ids, into an account of `account_bytes`, of which the request may have `bytes_max`. */
static void parse_many_ids(size_t account_bytes, size_t bytes_max, unsigned status, const char *code)
{
    struct parsed *p = calloc(1, sizeof(*p));
    char *body = malloc(300000);
    size_t at = (size_t)sprintf(body, "{\"prompt\":[");
    for (int i = 0; i < 20000; i++)
        at += (size_t)sprintf(body + at, "%s%d", i ? "," : "", i);
    sprintf(body + at, "]}");
    request_memory_init(&p->memory, test_account(account_bytes), bytes_max);
    assert_false(
        request_parse(&wire_completion.form, slice_of(body), &limits, &p->memory, &p->request, &p->why));
    assert_int_equal(reject_status(&p->why), status);
    assert_string_equal(reject_code(&p->why), code);
    done(p);
    free(body);
}

TEST(a_request_too_large_for_its_memory_is_told_so)
{
    parse_many_ids(256 << 10, 64 << 20, 429, "busy");
    parse_many_ids(64 << 20, 1 << 20, 413, "request_too_large");
}

TEST(dropping_the_prompt_keeps_tools_and_stops)
{
    struct parsed *p =
        accept(&wire_chat.form,
               CHAT("\"stop\":\"end\",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]"));
    size_t before = p->memory.used;
    request_drop_prompt(&p->request);
    assert_true(p->memory.used < before);
    assert_null(p->request.gen.messages);
    assert_true(slice_eq(p->request.gen.stops[0], SLICE("end")));
    assert_int_equal(json_array_size(p->request.gen.tools), 1);
    done(p);
}

TEST(a_message_stays_text_when_it_quotes_a_client)
{
    struct parsed *p =
        parse(&wire_chat.form, CHAT("\"response_format\":{\"type\":\"\\u0007\\u20acxxxxxxxxxxxxxxxxxxxxxxxxx"
                                    "xxxx\\u20ac\\u20ac\\u20ac\"}"));
    assert_false(p->ok);
    struct buf b;
    buf_init(&b, 4096, NULL);
    reject_write(&p->why, "", &b);
    json_t *v = json_loadb(b.ptr, b.len, 0, NULL);
    assert_non_null(v);
    assert_string_equal(json_string_value(json_object_get(json_object_get(v, "error"), "type")),
                        "invalid_request_error");
    json_decref(v);
    buf_done(&b);
    done(p);
}

TEST(every_dialect_is_whole)
{
    const struct wire *w;
    size_t count = 0;
    for (; (w = wire_at(count)); count++) {
        bool tokens = w->form.output == GEN_TOKENS;
        assert_true(w->route && w->id_prefix && w->part && w->whole && w->form.groups);
        assert_true(w->frame->envelope.status && w->frame->envelope.write);
        assert_true(w->frame->fail && w->frame->ping && w->frame->end);
        assert_true(!tokens || (w->object && w->chunk_object));
        assert_true(!tokens || !w->begin || (w->flush && w->finish)); /* without begin() it is whole */
        assert_true(tokens != (w->result != NULL));
        assert_true(tokens == (field_find(w->form.groups, "temperature") != NULL));
        assert_true(tokens == (field_find(w->form.groups, "stream") != NULL));
    }
    assert_true(count >= 2);
}

static void check_once(const struct request_form *form)
{
    for (const struct field_group *const *g = form->groups; *g; g++)
        for (size_t i = 0; i < (*g)->count; i++)
            assert_ptr_equal(field_find(form->groups, (*g)->fields[i].name), &(*g)->fields[i]);
}

TEST(no_field_stands_twice_in_a_form)
{
    for (size_t i = 0; wire_at(i); i++)
        check_once(&wire_at(i)->form);
    for (int kind = REQUEST_TOKENIZE; kind < REQUEST_KIND_COUNT; kind++)
        check_once(utility_form((enum request_kind)kind));
}

/* Fields of the API's other routes are refused where tokens are generated, and ignored elsewhere. */
TEST(fields_of_other_routes_are_refused)
{
    const struct request_form *tokenize = utility_form(REQUEST_TOKENIZE);
    assert_true(wire_has_elsewhere(&wire_chat.form, "prompt"));
    assert_true(wire_has_elsewhere(&wire_chat.form, "with_pieces"));
    assert_true(wire_has_elsewhere(&wire_completion.form, "messages"));
    assert_true(wire_has_elsewhere(&wire_completion.form, "tokens"));
    assert_false(wire_has_elsewhere(&wire_completion.form, "sotp"));
    assert_false(wire_has_elsewhere(tokenize, "temperature"));
    struct request_form other = wire_chat.form;
    other.api = NULL;
    assert_false(wire_has_elsewhere(&other, "prompt"));
    refuse(&wire_chat.form, CHAT("\"prompt\":\"x\""), 400, "prompt", "prompt is not a field of this route.");
    struct parsed *p = accept(tokenize, "{\"prompt\":\"x\",\"temperature\":1}");
    assert_string_equal(p->request.ignored, "temperature");
    done(p);
}

/* ---- vectors and scores ---- */

TEST(inputs_of_embeddings_are_counted)
{
    const struct request_form *form = &wire_embeddings.form;
    struct parsed *p = accept(form, "{\"input\":\"a\"}");
    assert_true(p->request.gen.output == GEN_VECTOR && p->request.gen.prompt_count == 1 &&
                !p->request.base64);
    done(p);
    p = accept(form, "{\"input\":[\"a\",[1,2]],\"encoding_format\":\"base64\",\"dimensions\":16}");
    assert_true(p->request.gen.prompt_count == 2 && p->request.base64 && p->request.gen.dimensions == 16);
    done(p);
    refuse(form, "{}", 400, "input", "missing");
    refuse(form, "{\"input\":[]}", 400, "input", "empty");
    refuse(form, "{\"input\":[\"a\",\"\"]}", 400, "input", "input[1]");
    refuse(form, "{\"input\":[[1],[-1]]}", 400, "input", "not a token id");
    refuse(form, "{\"input\":\"a\",\"encoding_format\":\"int8\"}", 400, "encoding_format", "base64");
    refuse(form, "{\"input\":\"a\",\"dimensions\":0}", 400, "dimensions", "from 1");
}

TEST(pairs_of_scores_are_counted)
{
    const struct request_form *form = &wire_score.form;
    struct parsed *p = accept(form, "{\"text_1\":\"a\",\"text_2\":[\"b\",{\"text\":\"c\"}]}");
    assert_true(p->request.gen.output == GEN_SCORE && p->request.gen.prompt_count == 2);
    done(p);
    p = accept(form, "{\"text_1\":[\"a\",\"b\"],\"text_2\":[\"c\",\"d\"]}");
    assert_int_equal(p->request.gen.prompt_count, 2);
    done(p);
    refuse(form, "{\"text_1\":\"a\"}", 400, "text_2", "missing");
    refuse(form, "{\"text_1\":[\"a\",\"b\"],\"text_2\":\"c\"}", 400, "text_2", "as many as");
    refuse(form, "{\"text_1\":[],\"text_2\":\"c\"}", 400, "text_1", "empty");
    p = accept(&wire_rerank.form, "{\"query\":\"a\",\"documents\":[\"b\",\"c\",\"d\"],\"top_n\":2,"
                                  "\"return_documents\":false}");
    assert_true(p->request.gen.prompt_count == 3 && p->request.top_n == 2 && p->request.without_documents);
    done(p);
    refuse(&wire_rerank.form, "{\"query\":\"a\",\"documents\":[{\"title\":\"b\"}]}", 400, "documents", "[0]");
    refuse(&wire_rerank.form, "{\"query\":\"a\",\"documents\":\"b\"}", 400, "documents", "list");
}

TEST_MAIN()
