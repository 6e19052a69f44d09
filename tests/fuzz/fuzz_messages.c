/* Bodies of Anthropic's Messages. The first byte selects the route and the memory limit of the request; the
 * rest is the body. Invariants: no crash; a refusal makes a valid envelope; an accepted conversation has the
 * form that templates expect, with turns of different roles; every byte is returned. */
#include "api/reject_http.h"
#include "api/request/request.h"
#include "api/wire/messages.h"
#include "api/wire/wire.h"
#include "base/check.h"
#include "gen/reject.h"
#include "gen/request_memory.h"

#include <jansson.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_envelope(const struct reject *why)
{
    struct buf b;
    json_error_t e;
    unsigned status = messages_status(why);
    ASSERT(status >= 400 && status < 600 && why->message[0]);
    buf_init(&b, 8192, NULL);
    messages_write_error(why, "", &b);
    ASSERT(b.error == 0);
    json_t *v = json_loadb(b.ptr, b.len, JSON_REJECT_DUPLICATES, &e);
    ASSERT(json_is_string(json_object_get(json_object_get(v, "error"), "message")));
    json_decref(v);
    buf_done(&b);
}

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
        bool is_text = json_is_string(json_object_get(part, "text"));
        bool has_tools = json_array_size(json_object_get(part, "tools")) > 0;
        ASSERT(has_tools || json_object_size(part) == (is_text ? 2 : 1));
        images += !is_text && !has_tools;
        tools += has_tools;
    }
    ASSERT(json_is_string(content) || images + tools > 0 || json_array_size(content) > 1);
    return images;
}

static void check_assistant(const json_t *m)
{
    const json_t *reasoning = json_object_get(m, "reasoning_content"), *call;
    size_t i;
    ASSERT(json_is_string(json_object_get(m, "content")) && (!reasoning || json_is_string(reasoning)));
    json_array_foreach(json_object_get(m, "tool_calls"), i, call) {
        const json_t *function = json_object_get(call, "function");
        ASSERT(json_is_string(json_object_get(call, "id")) &&
               json_is_string(json_object_get(function, "name")));
        ASSERT(json_is_object(json_object_get(function, "arguments")));
    }
}

static void check_messages(const struct request *r)
{
    uint32_t images = 0;
    size_t i, count = json_array_size(r->gen.messages);
    const json_t *m, *before = NULL;
    ASSERT(count > 0);
    json_array_foreach(r->gen.messages, i, m) {
        ASSERT(is_role(m, "system") || is_role(m, "user") || is_role(m, "assistant") || is_role(m, "tool"));
        ASSERT(!before || is_role(m, "tool") ||
               !is_role(before, json_string_value(json_object_get(m, "role"))));
        if (is_role(m, "assistant"))
            check_assistant(m);
        ASSERT(!is_role(m, "system") || r->gen.inserts_tools ||
               json_is_string(json_object_get(m, "content")));
        if (is_role(m, "tool"))
            ASSERT(json_is_string(json_object_get(m, "tool_call_id")));
        images += check_content(json_object_get(m, "content"));
        before = m;
    }
    ASSERT(images == gen_media_count(&r->gen));
    ASSERT(!r->gen.continues || (is_role(before, "assistant") && !json_object_get(before, "tool_calls")));
    ASSERT(r->gen.mark_count <= GEN_MARKS_MAX);
    for (uint32_t k = 0; k < r->gen.mark_count; k++)
        ASSERT(r->gen.marks[k].message < count);
}

static void check_tools(const struct request *r)
{
    size_t i;
    const json_t *tool;
    json_array_foreach(r->gen.tools, i, tool) {
        const json_t *function = json_object_get(tool, "function");
        ASSERT(json_string_length(json_object_get(function, "name")) > 0);
        ASSERT(json_is_object(json_object_get(function, "parameters")));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct request_limits limits = {.json_depth_max = 32, .choices_max = 8};
    struct request_memory memory;
    struct request request;
    struct reject why = {0};
    if (size == 0)
        return 0;
    const struct request_form *form = data[0] & 1 ? &messages_count_form : &wire_messages.form;
    size_t bytes_max = data[0] & 0x80 ? (size_t)(data[0] & 0x7f) << 6 : (size_t)64 << 20;
    request_memory_init(&memory, NULL, bytes_max);
    bool ok = request_parse(form, (struct slice){(const char *)data + 1, size - 1}, &limits, &memory,
                            &request, &why);
    ASSERT(ok == (why.kind == REJECT_NONE));
    if (ok) {
        check_messages(&request);
        check_tools(&request);
        request_drop_prompt(&request);
    } else {
        check_envelope(&why);
    }
    request_done(&request);
    request_memory_done(&memory);
    return 0;
}
