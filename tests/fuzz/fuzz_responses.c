/* Bodies of OpenAI's Responses. The first byte selects the memory limit of the request; the rest is the body.
 * Invariants: no crash; an accepted conversation has the form that templates expect; every byte is
 * returned. */
#include "api/responses_store.h"
#include "api/wire/responses.h"
#include "api/wire/wire.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/walk.h"
#include "gen/reject.h"
#include "gen/request_memory.h"

#include <jansson.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool is_role(const json_t *m, const char *role)
{
    const char *own = json_string_value(json_object_get(m, "role"));
    return own && strcmp(own, role) == 0;
}

/* How many images a template will find. */
static uint32_t check_content(const json_t *content)
{
    uint32_t images = 0, tools = 0;
    size_t i;
    const json_t *part;
    ASSERT(json_is_string(content) || json_array_size(content) > 0);
    json_array_foreach(content, i, part) {
        bool has_tools = json_array_size(json_object_get(part, "tools")) > 0;
        images += !has_tools && !json_is_string(json_object_get(part, "text"));
        tools += has_tools;
    }
    ASSERT(json_is_string(content) || images + tools > 0 || json_array_size(content) > 1);
    return images;
}

static void check_assistant(const json_t *m)
{
    const json_t *reasoning = json_object_get(m, "reasoning_content"), *call;
    size_t i;
    ASSERT(!reasoning || json_is_string(reasoning));
    json_array_foreach(json_object_get(m, "tool_calls"), i, call) {
        const json_t *function = json_object_get(call, "function");
        const json_t *arguments = json_object_get(function, "arguments");
        ASSERT(json_is_string(json_object_get(call, "id")) &&
               json_is_string(json_object_get(function, "name")));
        ASSERT(json_is_object(arguments) || json_is_string(arguments));
    }
}

static void check_messages(const struct request *r)
{
    uint32_t images = 0;
    size_t i;
    const json_t *m, *before = NULL;
    ASSERT(json_array_size(r->gen.messages) > 0);
    json_array_foreach(r->gen.messages, i, m) {
        ASSERT(is_role(m, "system") || is_role(m, "user") || is_role(m, "assistant") || is_role(m, "tool"));
        ASSERT(!before || is_role(m, "tool") ||
               !is_role(before, json_string_value(json_object_get(m, "role"))));
        if (is_role(m, "assistant"))
            check_assistant(m);
        if (is_role(m, "tool"))
            ASSERT(json_is_string(json_object_get(m, "tool_call_id")));
        images += check_content(json_object_get(m, "content"));
        before = m;
    }
    ASSERT(images == gen_media_count(&r->gen));
}

static void check_tools(const struct request *r)
{
    size_t i;
    const char *space;
    const json_t *tool;
    json_array_foreach(r->gen.tools, i, tool) {
        const json_t *name = json_object_get(json_object_get(tool, "function"), "name");
        struct slice flat = slice_of(json_string_value(name));
        ASSERT(flat.len > 0);
        ASSERT(responses_is_search(r, flat) || responses_find_tool(r, flat, &space));
    }
}

#define ZEROS "00000000000000000000000000000000"

/* One response of tenant 0, whose id has 32 zeros: for previous_response_id and item_reference. */
static struct responses_store *make_store(void)
{
    static const struct responses_store_opts opts = {NULL, 1 << 20, UINT64_MAX / 2};
    static struct responses_store *s;
    struct slice input =
        SLICE("{\"type\":\"message\",\"id\":\"item_" ZEROS "_0\",\"role\":\"user\",\"content\":\"Hello\"}");
    struct slice items =
        SLICE("{\"type\":\"message\",\"id\":\"item_" ZEROS "_0\",\"role\":\"user\",\"content\":\"Hello\"},\n"
              "{\"type\":\"function_call\",\"id\":\"fc_" ZEROS
              "_0\",\"call_id\":\"c\",\"name\":\"f\",\"arguments\":\"{}\"}");
    if (s)
        return s;
    struct responses_put put = {NULL, items, SLICE("{}"), input.len};
    ASSERT(responses_store_create(&opts, &s) == 0);
    ASSERT(responses_store_put(s, (struct responses_key){0}, &put, clock_now_ns()));
    return s;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct request_limits limits = {
        .json_depth_max = 32, .choices_max = 8, .responses = make_store(), .id = "1"};
    struct walk walk = {.arg = NULL};
    struct request_memory memory;
    struct request request;
    struct reject why = {0};
    if (size == 0)
        return 0;
    size_t bytes_max = data[0] & 0x80 ? (size_t)(data[0] & 0x7f) << 6 : (size_t)64 << 20;
    request_memory_init(&memory, NULL, bytes_max);
    bool ok = request_parse(&wire_responses.form, (struct slice){(const char *)data + 1, size - 1}, &limits,
                            &memory, &request, &why);
    ASSERT(ok == (why.kind == REJECT_NONE));
    if (ok) {
        check_messages(&request);
        check_tools(&request);
        request_drop_prompt(&request);
    }
    request_done(&request);
    request_memory_done(&memory);
    responses_store_check(limits.responses, &walk);
    return 0;
}
