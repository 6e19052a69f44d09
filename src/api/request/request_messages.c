/* request_messages.c - converts the messages of clients to the form that templates expect.
 *
 * Templates are written for one form: content is a string, the arguments of earlier calls are an object, no
 * value is null. One part of text becomes a string; several stay a list until the template is known
 * (chat_history.h). The role `developer` is OpenAI's newer name for `system`, and most templates have only
 * the latter. */
#include "api/request/custom_tool.h"
#include "api/request/field.h"
#include "api/request/request.h"

#include "base/buf.h"
#include "base/check.h"
#include "gen/json_depth.h"
#include "gen/reject.h"
#include "gen/request_memory.h"

struct place {
    struct request *request;
    size_t index; /* index of the message */
    struct request_memory *memory;
    json_t **media;
    struct reject *why;
};

/* ---- marks of the client ---- */

void request_mark(struct request *r, size_t message, size_t bytes)
{
    if (r->gen.mark_count == GEN_MARKS_MAX)
        return;
    struct chat_mark mark = {(uint32_t)message, bytes};
    for (uint32_t i = 0; i < r->gen.mark_count; i++)
        if (r->gen.marks[i].message == mark.message && r->gen.marks[i].bytes == bytes)
            return;
    r->gen.marks[r->gen.mark_count++] = mark;
}

void request_mark_part(struct request *r, size_t message, const json_t *parts, const json_t *part)
{
    struct request_texts *t = &r->texts;
    const json_t *mark = json_object_get(part, "prompt_cache_breakpoint");
    if (!mark || json_is_null(mark))
        return;
    if (t->message != message || t->parts > json_array_size(parts))
        *t = (struct request_texts){.message = message};
    for (; t->parts < json_array_size(parts); t->parts++)
        t->bytes += json_string_length(json_object_get(json_array_get(parts, t->parts), "text"));
    request_mark(r, message, t->bytes);
}

void request_drop_messages(struct request *r, size_t head)
{
    uint32_t kept = 0;
    ASSERT(r->gen.mark_count <= GEN_MARKS_MAX);
    while (json_array_size(r->gen.messages) > head)
        json_array_remove(r->gen.messages, json_array_size(r->gen.messages) - 1);
    json_array_clear(r->gen.media);
    for (uint32_t i = 0; i < r->gen.mark_count; i++)
        if (r->gen.marks[i].message < head)
            r->gen.marks[kept++] = r->gen.marks[i];
    r->gen.mark_count = kept;
    r->texts = (struct request_texts){0};
}

static bool refuse_message(const struct place *p, const char *what)
{
    char param[64];
    snprintf(param, sizeof(param), "messages[%zu]", p->index);
    return reject_value(p->why, param, "messages[%zu]%s", p->index, what);
}

static bool no_memory(const struct place *p)
{
    return request_memory_reject(p->memory, p->why);
}

/* ---- content ---- */

/* The text of a part; NULL: the part has another type. */
static json_t *text_of_part(json_t *part)
{
    const char *type = json_string_value(json_object_get(part, "type"));
    json_t *text = NULL;
    if (json_is_string(part))
        text = part;
    else if (type && strcmp(type, "text") == 0)
        text = json_object_get(part, "text");
    else if (type && strcmp(type, "refusal") == 0)
        text = json_object_get(part, "refusal");
    return json_is_string(text) ? text : NULL;
}

static bool refuse_part(const struct place *p, size_t index, const json_t *part)
{
    char param[64];
    const char *type = json_string_value(json_object_get(part, "type"));
    snprintf(param, sizeof(param), "messages[%zu].content[%zu]", p->index, index);
    if (type && (strcmp(type, "text") == 0 || strcmp(type, "refusal") == 0))
        return reject_value(p->why, param, "%s must have its \"%s\" as a string.", param, type);
    return reject_unsupported(p->why, param,
                              "%s must be a part of type \"text\", \"image_url\" or \"video_url\".", param);
}

/* Moves its source to the list; the template gets a placeholder in its position. */
static bool add_media(const struct place *p, json_t *list, const json_t *part, size_t index)
{
    char at[64];
    snprintf(at, sizeof(at), "messages[%zu].content[%zu]", p->index, index);
    json_t *entry = request_media_read(part, at, p->why);
    if (!entry)
        return p->why->kind ? false : no_memory(p);
    if (!*p->media)
        *p->media = json_array();
    if (json_array_append_new(*p->media, entry) < 0 ||
        json_array_append_new(list, json_pack("{ss}", "type", request_media_type(part))) < 0)
        return no_memory(p);
    return true;
}

/* A string where one text is all; a new reference. */
static json_t *alone_or_list(json_t *list)
{
    json_t *text = json_object_get(json_array_get(list, 0), "text");
    if (json_array_size(list) == 0)
        return json_string("");
    return json_incref(json_array_size(list) == 1 && text ? text : list);
}

/* A list of parts with text and one placeholder for each image; a string where one text is all. */
static bool sort_parts(const struct place *p, json_t *message, const json_t *parts)
{
    json_t *list = json_array();
    bool ok = list || no_memory(p);
    for (size_t i = 0; ok && i < json_array_size(parts); i++) {
        json_t *part = json_array_get(parts, i), *text = text_of_part(part);
        if (request_is_media(part))
            ok = add_media(p, list, part, i);
        else if (!text)
            ok = refuse_part(p, i, part);
        else
            ok = json_array_append_new(list, field_text_part(text)) == 0 || no_memory(p);
        request_mark_part(p->request, p->index, list, part);
    }
    if (!ok) {
        json_decref(list);
        return false;
    }
    json_t *content = alone_or_list(list);
    json_decref(list);
    return json_object_set_new(message, "content", content) == 0 || no_memory(p);
}

static bool normalise_content(const struct place *p, json_t *message, bool may_be_absent)
{
    const json_t *content = json_object_get(message, "content");
    if (json_is_string(content))
        return true;
    if (json_is_array(content))
        return sort_parts(p, message, content);
    if (content && !json_is_null(content))
        return refuse_message(p, ".content must be a string or a list of parts.");
    if (!may_be_absent)
        return refuse_message(p, ".content is missing.");
    return json_object_set_new(message, "content", json_string("")) == 0 || no_memory(p);
}

/* ---- an assistant's earlier calls ---- */

bool request_read_arguments(json_t *function, const struct request_limits *limits,
                            struct request_memory *memory)
{
    const json_t *arguments = json_object_get(function, "arguments");
    struct slice text = {json_string_value(arguments), json_string_length(arguments)};
    json_t *object = NULL;
    json_error_t e;
    if (text.len == 0)
        object = json_object();
    else if (json_depth_within(text, limits->json_depth_max))
        object = request_memory_parse(memory, text.ptr, text.len, &e);
    if (!json_is_object(object)) {
        json_decref(object);
        return true;
    }
    return json_object_set_new(function, "arguments", object) == 0;
}

static bool normalise_arguments(const struct place *p, json_t *function, const struct request_limits *limits)
{
    const json_t *arguments = json_object_get(function, "arguments");
    if (json_is_object(arguments))
        return true;
    if (arguments && !json_is_string(arguments) && !json_is_null(arguments))
        return refuse_message(p, ".tool_calls: function.arguments must be an object or its JSON text.");
    return request_read_arguments(function, limits, p->memory) || no_memory(p);
}

/* A call of a custom tool becomes that of its function. */
static bool normalise_custom(const struct place *p, json_t *call)
{
    json_t *custom = json_object_get(call, "custom"), *name = json_object_get(custom, "name");
    json_t *input = json_object_get(custom, "input");
    if (!json_is_string(name) || !json_is_string(input))
        return refuse_message(p, ".tool_calls: a custom call needs \"custom\" with a name and an input.");
    json_t *arguments = custom_tool_arguments(input);
    bool ok =
        arguments &&
        json_object_set_new(call, "function", json_pack("{sOsO}", "name", name, "arguments", arguments)) == 0;
    json_decref(arguments);
    ok = ok && json_object_set_new(call, "type", json_string("function")) == 0;
    json_object_del(call, "custom");
    return ok || no_memory(p);
}

static bool normalise_call(const struct place *p, json_t *call, const struct request_limits *limits)
{
    const json_t *type = json_object_get(call, "type");
    const char *word = json_string_value(type);
    if (word && strcmp(word, "custom") == 0)
        return normalise_custom(p, call);
    json_t *function = json_object_get(call, "function");
    if (!json_is_string(json_object_get(function, "name")))
        return refuse_message(p, ".tool_calls: each needs a function with a name.");
    if (type && !json_is_null(type) && strcmp(word ? word : "", "function") != 0)
        return refuse_message(p, ".tool_calls: the type of each must be \"function\" or \"custom\".");
    return normalise_arguments(p, function, limits);
}

static bool normalise_calls(const struct place *p, json_t *message, const struct request_limits *limits)
{
    json_t *calls = json_object_get(message, "tool_calls"), *call;
    size_t i;
    if (!calls || json_is_null(calls) || (json_is_array(calls) && json_array_size(calls) == 0)) {
        json_object_del(message, "tool_calls");
        return true;
    }
    if (!json_is_array(calls))
        return refuse_message(p, ".tool_calls must be a list.");
    json_array_foreach(calls, i, call)
        if (!normalise_call(p, call, limits))
            return false;
    return true;
}

/* `reasoning` is the newer name; templates read reasoning_content. */
static bool normalise_reasoning(const struct place *p, json_t *message)
{
    json_t *reasoning = json_object_get(message, "reasoning_content");
    if (!reasoning || json_is_null(reasoning))
        reasoning = json_object_get(message, "reasoning");
    if (!reasoning || json_is_null(reasoning)) {
        json_object_del(message, "reasoning_content");
    } else if (!json_is_string(reasoning)) {
        return refuse_message(p, ".reasoning_content must be a string.");
    } else if (json_object_set(message, "reasoning_content", reasoning) < 0) {
        return no_memory(p);
    }
    json_object_del(message, "reasoning");
    return true;
}

static bool is_reasoning_part(const json_t *part)
{
    const char *type = json_string_value(json_object_get(part, "type"));
    return type && (strcmp(type, "thinking") == 0 || strcmp(type, "reasoning") == 0 ||
                    strcmp(type, "redacted_thinking") == 0);
}

/* The text of such a part, wherever its kind of client has it: a string, or a list of parts with texts. */
static void put_reasoning(const json_t *part, struct buf *ret)
{
    static const char *const names[] = {"thinking", "reasoning", "text"};
    const json_t *value = NULL, *piece;
    size_t i;
    for (size_t k = 0; k < COUNT_OF(names) && !value; k++)
        value = json_object_get(part, names[k]);
    buf_put(ret, json_string_value(value), json_string_length(value));
    json_array_foreach(value, i, piece) {
        const json_t *text = json_object_get(piece, "text");
        buf_put(ret, json_string_value(text), json_string_length(text));
    }
}

/* Reasoning that comes back as parts of the content becomes the message's, unless it has some. */
static bool take_reasoning_parts(const struct place *p, json_t *message)
{
    json_t *content = json_object_get(message, "content");
    struct charge charge = request_memory_charge(p->memory);
    struct buf text;
    bool ok = true;
    buf_init(&text, SIZE_MAX / 4, &charge);
    for (size_t i = 0; json_is_array(content) && i < json_array_size(content);) {
        const json_t *part = json_array_get(content, i);
        if (!is_reasoning_part(part)) {
            i++;
            continue;
        }
        put_reasoning(part, &text);
        json_array_remove(content, i);
    }
    if (text.error ||
        (text.len && !json_object_get(message, "reasoning_content") &&
         json_object_set_new(message, "reasoning_content", json_stringn(text.ptr, text.len)) < 0))
        ok = no_memory(p);
    buf_done(&text);
    return ok;
}

/* A refusal that comes back is the text of its message. */
static bool normalise_refusal(const struct place *p, json_t *message)
{
    json_t *refusal = json_object_get(message, "refusal"), *content = json_object_get(message, "content");
    bool said = json_string_length(content) > 0 || json_array_size(content) > 0;
    if (refusal && !json_is_null(refusal) && !json_is_string(refusal))
        return refuse_message(p, ".refusal must be a string.");
    if (json_is_string(refusal) && !said && json_object_set(message, "content", refusal) < 0)
        return no_memory(p);
    json_object_del(message, "refusal");
    return true;
}

static bool normalise_assistant(const struct place *p, json_t *message, const struct request_limits *limits)
{
    static const char *const unknown[] = {"function_call", "audio"};
    for (size_t i = 0; i < COUNT_OF(unknown); i++) {
        const json_t *v = json_object_get(message, unknown[i]);
        if (v && !json_is_null(v))
            return reject_unsupported(p->why, unknown[i], "messages[%zu].%s is not supported; leave it out.",
                                      p->index, unknown[i]);
        json_object_del(message, unknown[i]);
    }
    return normalise_refusal(p, message) && normalise_calls(p, message, limits) &&
           normalise_reasoning(p, message) && take_reasoning_parts(p, message) &&
           normalise_content(p, message, true);
}

/* ---- messages ---- */

static bool normalise_message(const struct place *p, json_t *message, const struct request_limits *limits)
{
    if (!json_is_object(message))
        return refuse_message(p, " must be an object.");
    const char *role = json_string_value(json_object_get(message, "role"));
    if (!role)
        return refuse_message(p, ".role is missing.");
    if (strcmp(role, "assistant") == 0)
        return normalise_assistant(p, message, limits);
    bool tool = strcmp(role, "tool") == 0;
    if (strcmp(role, "developer") == 0) {
        if (json_object_set_new(message, "role", json_string("system")) < 0)
            return no_memory(p);
    } else if (strcmp(role, "system") != 0 && strcmp(role, "user") != 0 && !tool) {
        return refuse_message(p, ".role must be system, developer, user, assistant or tool.");
    }
    /* A tool may have nothing to say, and its message comes back in each turn. */
    return normalise_content(p, message, tool && json_is_null(json_object_get(message, "content")));
}

static bool has_text(const json_t *content)
{
    size_t i, bytes = json_string_length(content);
    const json_t *part;
    json_array_foreach(content, i, part)
        bytes += json_string_length(json_object_get(part, "text"));
    return bytes > 0;
}

/* continue_final_message: the last message must have a text that the reply can continue. */
static bool check_continued(const struct request *r, struct reject *why)
{
    static const char field[] = "continue_final_message";
    const json_t *last = json_array_get(r->gen.messages, json_array_size(r->gen.messages) - 1);
    const char *role = json_string_value(json_object_get(last, "role"));
    if (!r->gen.continues)
        return true;
    if (r->gen.add_generation_prompt)
        return reject_value(why, field,
                            "continue_final_message begins no new message: it needs "
                            "add_generation_prompt false.");
    if (!role || strcmp(role, "assistant") != 0 || json_object_get(last, "tool_calls") ||
        !has_text(json_object_get(last, "content")))
        return reject_value(why, field,
                            "continue_final_message continues the text of a last message of the assistant, "
                            "without tool_calls; the last message has none.");
    return true;
}

bool request_convert_messages(struct request *r, const struct request_limits *limits,
                              struct request_memory *memory, struct reject *why)
{
    size_t i;
    json_t *message;
    bool ok = true;
    request_memory_enter(memory);
    json_array_foreach(r->gen.messages, i, message) {
        struct place p = {r, i, memory, &r->gen.media, why};
        ok = normalise_message(&p, message, limits);
        if (!ok)
            break;
    }
    ok = ok && request_convert_tools(r, memory, why);
    request_memory_enter(NULL);
    return ok && check_continued(r, why);
}

/* ---- lists of parts that other dialects make ---- */

json_t *request_glue(const char *text)
{
    return json_pack("{sssssb}", "type", "text", "text", text, "glue", 1);
}

/* A list of parts, and the text that will be its next part. */
struct joined {
    json_t *list;
    struct buf text;
    bool begun, glued; /* a text was begun; the next one continues it */
};

/* The text that was begun becomes a part. */
static bool end_text(struct joined *j)
{
    json_t *text =
        j->begun && !j->text.error ? json_stringn(j->text.ptr ? j->text.ptr : "", j->text.len) : NULL;
    bool ok = !j->begun || (text && json_array_append_new(j->list, field_text_part(text)) == 0);
    json_decref(text);
    buf_clear(&j->text);
    j->begun = j->glued = false;
    return ok;
}

static bool add_joined(struct joined *j, json_t *part, bool whole)
{
    const json_t *text = text_of_part(part);
    if (!text)
        return end_text(j) && json_array_append(j->list, part) == 0;
    bool glue = json_is_true(json_object_get(part, "glue"));
    if (!whole && !glue && !j->glued && !end_text(j))
        return false;
    buf_put(&j->text, json_string_value(text), json_string_length(text));
    j->begun = true;
    j->glued = glue;
    return true;
}

bool request_join_parts(json_t *message, const char *name, bool whole, struct request_memory *memory)
{
    struct charge charge = request_memory_charge(memory);
    json_t *parts = json_object_get(message, name), *part;
    struct joined j = {.list = json_array()};
    size_t i;
    bool ok = j.list != NULL;
    if (!json_is_array(parts)) {
        json_decref(j.list);
        return true;
    }
    buf_init(&j.text, SIZE_MAX / 4, &charge);
    json_array_foreach(parts, i, part)
        ok = ok && add_joined(&j, part, whole);
    ok = ok && end_text(&j) && json_object_set_new(message, name, alone_or_list(j.list)) == 0;
    buf_done(&j.text);
    json_decref(j.list);
    return ok;
}
