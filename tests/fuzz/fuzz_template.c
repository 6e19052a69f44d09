/* Chat templates and their variables. The first byte selects limits. Then comes a template up to the first
 * zero byte, then the request as JSON (an object of variables; `messages` and `tools` among them), or a
 * conversation of ours. Invariants: no crash; every refusal has a message; every bound is kept; the scratch
 * arena is rewound; two renderings give the same text, with or without cuts; cuts lie in the text. */
#include "base/check.h"
#include "template/chat_template.h"

#include <errno.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char conversation[] =
    "{\"messages\": [{\"role\": \"system\", \"content\": \"Gr\\u00fc\\u00dfe\"}, {\"role\": \"user\", "
    "\"content\": \"hi\"},"
    " {\"role\": \"assistant\", \"content\": null, \"reasoning_content\": \"r\", \"tool_calls\": [{\"type\": "
    "\"function\","
    " \"id\": \"c\", \"function\": {\"name\": \"f\", \"arguments\": {\"a\": 1.5, \"b\": [true, null]}}}]},"
    " {\"role\": \"tool\", \"tool_call_id\": \"c\", \"content\": [{\"type\": \"text\", \"text\": \"42\"}]}],"
    " \"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {\"type\": "
    "\"object\"}}}],"
    " \"enable_thinking\": true, \"n\": 3}";

static struct arena *arena_of(size_t bytes)
{
    struct arena *a = NULL;
    struct arena_opts opts = {.bytes_max = bytes};
    ASSERT(arena_create(&opts, &a) == 0);
    return a;
}

static void check_cuts(const struct chat_cuts *cuts, size_t len)
{
    ASSERT(cuts->count <= CHAT_CUTS_MAX);
    for (uint32_t i = 0; i < cuts->count; i++)
        ASSERT(cuts->bytes[i] > (i ? cuts->bytes[i - 1] : 0) && cuts->bytes[i] <= len);
}

/* `cuts`: NULL, or filled in. */
static int render(const struct chat_template *t, const json_t *request,
                  const struct chat_template_limits *limits, struct buf *ret, struct chat_cuts *cuts)
{
    struct err e = {0};
    struct arena *scratch = arena_of((size_t)8 << 20);
    const json_t *messages = json_object_get(request, "messages"), *tools = json_object_get(request, "tools");
    struct chat_template_input in = {
        .messages = json_is_array(messages) ? messages : NULL,
        .tools = json_is_array(tools) ? tools : NULL,
        .kwargs = request,
        .add_generation_prompt = true,
        .bos_token = SLICE("<s>"),
        .eos_token = SLICE("</s>"),
        .now_s = 1700000000,
    };
    json_t *none = NULL;
    if (!in.messages)
        in.messages = none = json_array();
    int r = chat_template_render_cuts(t, scratch, &in, limits, ret, cuts, &e);
    ASSERT(r == 0 || ((r == -EINVAL || r == -E2BIG || r == -ENOMEM) && e.text[0]));
    ASSERT(r != 0 || buf_slice(ret).len <= limits->output_bytes_max);
    if (r == 0 && cuts)
        check_cuts(cuts, ret->len);
    json_decref(none);
    arena_free(scratch);
    return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct chat_template_limits all[] = {
        {20000, 400, 65536}, {300, 400, 65536}, {20000, 12, 65536}, {20000, 400, 100}};
    if (size == 0)
        return 0;
    const struct chat_template_limits *limits = &all[data[0] % 4];
    const char *source = (const char *)data + 1, *end = memchr(source, 0, size - 1);
    size_t len = end ? (size_t)(end - source) : size - 1;
    json_t *request = end ? json_loadb(end + 1, size - 2 - len, 0, NULL) : json_loads(conversation, 0, NULL);
    struct chat_template *t = NULL;
    struct err e = {0};
    struct arena *a = arena_of((size_t)16 << 20);
    if (request && json_is_object(request)) {
        int r = chat_template_compile(a, (struct slice){source, len}, &t, &e);
        ASSERT(r == 0 || ((r == -EINVAL || r == -E2BIG || r == -ENOMEM) && e.text[0]));
        struct buf one, two;
        buf_init(&one, 1 << 20, NULL);
        buf_init(&two, 1 << 20, NULL);
        if (r == 0) {
            struct chat_cuts cuts;
            int first = render(t, request, limits, &one, NULL),
                second = render(t, request, limits, &two, &cuts);
            /* Tracing messages takes some memory, too. */
            ASSERT(second == first || second == -E2BIG);
            ASSERT(first != 0 || second != 0 || slice_eq(buf_slice(&one), buf_slice(&two)));
        }
        buf_done(&one);
        buf_done(&two);
    }
    arena_free(a);
    json_decref(request);
    return 0;
}
