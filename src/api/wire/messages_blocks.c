/* messages_blocks.c - Anthropic's messages of ordered blocks, as messages that templates expect.
 *
 * Messages of one role in a row become one. The results among the blocks of a user message become messages of
 * the role `tool`, in order, and its other blocks a user message after them. A message of the role `system`
 * stays at its place, or joins the user's turn there (gen/prompt.c): moved to the front it would change the
 * prefix of every later prompt. A last message of the assistant is continued by the reply.
 *
 * Until the end content is a list of parts. Then the texts of the system and of the assistant become one;
 * several texts of a user or of a result stay a list until the template is known (chat_history.h). */
#include "api/reasoning_seal.h"
#include "api/request/field.h"
#include "api/request/known_types.h"
#include "api/wire/messages.h"

#include "gen/reject.h"

#include <stdio.h>

/* Its value differs in each request, so no prefix would be found in the cache. */
#define BILLING "x-anthropic-billing-header:"
/* Before the text of a compaction. */
#define SUMMARY "Summary of the conversation until here:\n\n"

static bool refuse(const struct messages_conversion *c, const char *what)
{
    return reject_value(c->why, c->at, "%s%s", c->at, what);
}

static const char *string_of(const json_t *v, const char *name)
{
    return json_string_value(json_object_get(v, name));
}

static bool is_type(const json_t *block, const char *type)
{
    const char *own = string_of(block, "type");
    return own && strcmp(own, type) == 0;
}

static bool is_role(const json_t *message, const char *role)
{
    const char *own = string_of(message, "role");
    return own && strcmp(own, role) == 0;
}

/* ---- parts ---- */

static bool append(const struct messages_conversion *c, json_t *list, json_t *v)
{
    return json_array_append_new(list, v) == 0 || messages_no_memory(c);
}

static bool add_text(const struct messages_conversion *c, json_t *parts, json_t *text)
{
    if (!json_is_string(text))
        return refuse(c, " must have its text as a string.");
    return append(c, parts, field_text_part(text));
}

/* Joins its two neighbours. */
static bool add_glue(const struct messages_conversion *c, json_t *parts, const char *words)
{
    return append(c, parts, request_glue(words));
}

/* "data:image/png;base64,...": one copy of the data, and the original goes. */
static json_t *data_url(const struct messages_conversion *c, json_t *source)
{
    struct charge charge = request_memory_charge(c->memory);
    const json_t *data = json_object_get(source, "data");
    const char *type = string_of(source, "media_type");
    struct buf url;
    if (!json_is_string(data) || !type) {
        refuse(c, ".source must have media_type and data.");
        return NULL;
    }
    buf_init(&url, SIZE_MAX / 4, &charge);
    buf_printf(&url, "data:%.64s;base64,", type);
    buf_put(&url, json_string_value(data), json_string_length(data));
    json_object_del(source, "data");
    json_t *ret = url.error ? NULL : json_stringn(url.ptr, url.len);
    buf_done(&url);
    if (!ret)
        messages_no_memory(c);
    return ret;
}

static json_t *image_url(const struct messages_conversion *c, const json_t *block)
{
    json_t *source = json_object_get(block, "source"), *url = json_object_get(source, "url");
    if (is_type(source, "base64"))
        return data_url(c, source);
    if (is_type(source, "url") && json_is_string(url))
        return json_incref(url);
    refuse(c, ".source must be of type \"base64\" or \"url\".");
    return NULL;
}

static bool add_image(struct messages_conversion *c, json_t *parts, const json_t *block)
{
    json_t *url = image_url(c, block), **media = &c->request->gen.media;
    if (!url)
        return false;
    json_t *part = json_pack("{sssO}", "type", "image", "image", url);
    json_t *entry = part ? request_media_read(part, c->at, c->why) : NULL;
    json_decref(part);
    json_decref(url);
    if (!entry)
        return c->why->kind ? false : messages_no_memory(c);
    if (!*media)
        *media = json_array();
    if (!*media)
        json_decref(entry);
    return *media ? append(c, *media, entry) && append(c, parts, json_pack("{ss}", "type", "image"))
                  : messages_no_memory(c);
}

static bool add_block(struct messages_conversion *c, json_t *parts, json_t *block);

static bool add_list(struct messages_conversion *c, json_t *parts, json_t *content)
{
    size_t i;
    json_t *block;
    if (json_is_string(content))
        return add_text(c, parts, content);
    if (!json_is_array(content))
        return refuse(c, " must have content: a string or a list of blocks.");
    json_array_foreach(content, i, block)
        if (!add_block(c, parts, block))
            return false;
    return true;
}

static bool add_line(const struct messages_conversion *c, json_t *parts, const json_t *block,
                     const char *name)
{
    json_t *text = json_object_get(block, name);
    if (!json_is_string(text) || json_string_length(text) == 0)
        return true;
    return add_text(c, parts, text) && add_glue(c, parts, "\n");
}

/* A text, or blocks; PDFs would have to be rendered. */
static bool add_document(struct messages_conversion *c, json_t *parts, const json_t *block)
{
    json_t *source = json_object_get(block, "source");
    if (!add_line(c, parts, block, "title") || !add_line(c, parts, block, "context"))
        return false;
    if (is_type(source, "text"))
        return add_text(c, parts, json_object_get(source, "data"));
    if (is_type(source, "content"))
        return add_list(c, parts, json_object_get(source, "content"));
    return reject_unsupported(
        c->why, c->at,
        "%s: a document's source must be of type \"text\" or \"content\"; PDF and files "
        "are not supported. Send their text or images.",
        c->at);
}

static bool add_search_result(struct messages_conversion *c, json_t *parts, const json_t *block)
{
    return add_line(c, parts, block, "title") && add_line(c, parts, block, "source") &&
           add_list(c, parts, json_object_get(block, "content"));
}

static bool add_left_out(const struct messages_conversion *c, json_t *parts, const json_t *block,
                         const char *type)
{
    json_t *text = known_type_text(block, type);
    bool ok = text ? add_text(c, parts, text) : messages_no_memory(c);
    json_decref(text);
    return ok;
}

/* A block of a user's message or of a tool's result. */
static bool add_block(struct messages_conversion *c, json_t *parts, json_t *block)
{
    const char *type = string_of(block, "type");
    if (!type)
        return refuse(c, " must be an object with a type.");
    const struct known_type *row = known_type_find(&messages_user_types, type);
    if (row->fate == TYPE_REFUSED)
        return known_type_refuse(row, c->at, type, c->why);
    if (row->fate != TYPE_CONVERTED)
        known_type_note(c->request, &messages_user_types, type);
    switch (row->kind) {
    case TYPE_TEXT:
        return add_text(c, parts, json_object_get(block, "text"));
    case TYPE_IMAGE:
        return add_image(c, parts, block);
    case TYPE_DOCUMENT:
        return add_document(c, parts, block);
    case TYPE_SEARCH_RESULT:
        return add_search_result(c, parts, block);
    case TYPE_REFERENCE:
        return messages_refer_to_tool(c, parts, block);
    case TYPE_RESULT:
        return refuse(c, ": a tool_result stands in a message of the user, not in another block.");
    default:
        return row->fate == TYPE_IGNORED || add_left_out(c, parts, block, type);
    }
}

/* ---- turns ---- */

/* The last message, when it has this role, or a new one; borrowed. NULL: no memory. */
static json_t *turn_of(const struct messages_conversion *c, const char *role)
{
    json_t *all = c->request->gen.messages, *last = json_array_get(all, json_array_size(all) - 1);
    if (json_array_size(all) > 0 && is_role(last, role))
        return last;
    last = json_pack("{sss[]}", "role", role, "content");
    if (json_array_append_new(all, last) < 0) {
        messages_no_memory(c);
        return NULL;
    }
    return last;
}

static size_t last_index(const struct messages_conversion *c)
{
    return json_array_size(c->request->gen.messages) - 1;
}

static void place_at(struct messages_conversion *c, size_t message, size_t block)
{
    snprintf(c->at, sizeof(c->at), "messages[%zu].content[%zu]", message, block);
}

static bool add_result(struct messages_conversion *c, json_t *block)
{
    json_t *id = json_object_get(block, "tool_use_id"), *content = json_object_get(block, "content");
    if (!json_is_string(id))
        return refuse(c, " must have a tool_use_id.");
    if (!field_is_flag(json_object_get(block, "is_error")))
        return refuse(c, ".is_error must be true or false.");
    json_t *name = json_object_get(c->names, json_string_value(id)), *parts = json_array();
    json_t *message = json_pack("{sssOso}", "role", "tool", "tool_call_id", id, "content", parts);
    if (!message || (name && json_object_set(message, "name", name) < 0)) {
        json_decref(message);
        return messages_no_memory(c);
    }
    if (!append(c, c->request->gen.messages, message))
        return false;
    if (json_is_true(json_object_get(block, "is_error")) && !add_glue(c, parts, "Error: "))
        return false;
    messages_mark(c->request, block, last_index(c), SIZE_MAX);
    return !content || json_is_null(content) || add_list(c, parts, content);
}

/* Blocks of the user's own message, or nothing at all. */
static bool has_other_blocks(const json_t *content)
{
    size_t i;
    const json_t *block;
    json_array_foreach(content, i, block) {
        const char *type = string_of(block, "type");
        const struct known_type *row = type ? known_type_find(&messages_user_types, type) : NULL;
        if (!row || (row->kind != TYPE_RESULT && row->fate != TYPE_IGNORED))
            return true;
    }
    return json_array_size(content) == 0;
}

/* Blocks that are left out are named, also where the message has no others. */
static void note_ignored(struct messages_conversion *c, const json_t *content)
{
    size_t i;
    const json_t *block;
    json_array_foreach(content, i, block) {
        const char *type = string_of(block, "type");
        if (type && known_type_find(&messages_user_types, type)->fate == TYPE_IGNORED)
            known_type_note(c->request, &messages_user_types, type);
    }
}

/* A line between the texts of messages that become one. */
static bool add_break(const struct messages_conversion *c, json_t *parts)
{
    return json_array_size(parts) == 0 || add_glue(c, parts, "\n\n");
}

static bool convert_user(struct messages_conversion *c, size_t index, json_t *content)
{
    size_t i;
    json_t *block;
    json_array_foreach(content, i, block) {
        place_at(c, index, i);
        if (is_type(block, "tool_result") && !add_result(c, block))
            return false;
    }
    if (json_is_array(content) && !has_other_blocks(content)) {
        note_ignored(c, content);
        return true;
    }
    json_t *turn = turn_of(c, "user"), *parts = json_object_get(turn, "content");
    place_at(c, index, 0);
    if (!turn || !add_break(c, parts))
        return false;
    if (!json_is_array(content))
        return add_list(c, parts, content);
    json_array_foreach(content, i, block) {
        place_at(c, index, i);
        if (is_type(block, "tool_result"))
            continue;
        if (!add_block(c, parts, block))
            return false;
        messages_mark(c->request, block, last_index(c), SIZE_MAX);
    }
    return true;
}

/* ---- the assistant's turns ---- */

/* The list of that name; NULL: no memory. */
static json_t *list_of(const struct messages_conversion *c, json_t *message, const char *name)
{
    json_t *list = json_object_get(message, name);
    if (!list && json_object_set_new(message, name, json_array()) < 0)
        messages_no_memory(c);
    return json_object_get(message, name);
}

static bool add_call(struct messages_conversion *c, json_t *turn, const json_t *block)
{
    json_t *id = json_object_get(block, "id"), *name = json_object_get(block, "name"),
           *input = json_object_get(block, "input");
    if (!json_is_string(id) || !json_is_string(name) ||
        (input && !json_is_null(input) && !json_is_object(input)))
        return refuse(c, " must have id and name as strings and input as an object.");
    input = json_is_object(input) ? json_incref(input) : json_object();
    json_t *list = list_of(c, turn, "tool_calls");
    json_t *call = list ? json_pack("{sOsss{sOsO}}", "id", id, "type", "function", "function", "name", name,
                                    "arguments", input)
                        : NULL;
    json_decref(input);
    return list && append(c, list, call) &&
           (json_object_set(c->names, json_string_value(id), name) == 0 || messages_no_memory(c));
}

/* True: the signature of a block without text has the text, which is added to `list`. */
static bool unseal(const struct messages_conversion *c, json_t *list, const json_t *block, bool *failed)
{
    const json_t *shown = json_object_get(block, "thinking"), *given = json_object_get(block, "signature");
    struct slice sealed = {json_string_value(given), json_string_length(given)};
    struct charge charge = request_memory_charge(c->memory);
    struct buf text;
    *failed = false;
    if (!json_is_string(shown) || json_string_length(shown) > 0 || sealed.len == 0)
        return false;
    buf_init(&text, SIZE_MAX / 4, &charge);
    bool ok = reasoning_unseal(sealed, &text);
    json_t *words = ok && text.error == 0 ? json_stringn(text.ptr ? text.ptr : "", text.len) : NULL;
    *failed = (text.error && !messages_no_memory(c)) ||
              (ok && !(words ? add_text(c, list, words) : messages_no_memory(c)));
    json_decref(words);
    buf_done(&text);
    return ok;
}

/* The text that the client has, or that of the signature; a signature of another server is not checked. */
static bool add_thinking(struct messages_conversion *c, json_t *turn, const json_t *block)
{
    json_t *list = list_of(c, turn, "reasoning_content");
    bool failed = false;
    if (list && (unseal(c, list, block, &failed) || failed))
        return !failed;
    return list && add_text(c, list, json_object_get(block, "thinking"));
}

/* A summary stands for all messages before it; without one the compaction failed, and they stay. */
static bool add_compaction(struct messages_conversion *c, const json_t *block)
{
    json_t *summary = json_object_get(block, "content");
    if (!summary || json_is_null(summary))
        return true;
    if (!json_is_string(summary))
        return refuse(c, ".content must be a string or null.");
    request_drop_messages(c->request, c->head);
    json_t *turn = turn_of(c, "user"), *parts = json_object_get(turn, "content"), *change;
    bool ok = turn && add_glue(c, parts, SUMMARY) && add_text(c, parts, summary) &&
              (tool_set_restart(&c->set) || messages_no_memory(c));
    size_t i;
    json_array_foreach(json_object_get(block, "tool_changes"), i, change)
        ok = ok && messages_change_tools(c, parts, change, is_type(change, "tool_addition"));
    return ok;
}

static bool add_assistant_block(struct messages_conversion *c, json_t *block)
{
    const char *type = string_of(block, "type");
    if (!type)
        return refuse(c, " must be an object with a type.");
    const struct known_type *row = known_type_find(&messages_assistant_types, type);
    if (row->fate != TYPE_CONVERTED)
        return known_type_note(c->request, &messages_assistant_types, type), true;
    if (row->kind == TYPE_COMPACTION)
        return add_compaction(c, block);
    json_t *turn = turn_of(c, "assistant");
    if (!turn)
        return false;
    if (row->kind == TYPE_THINKING)
        return add_thinking(c, turn, block);
    if (row->kind == TYPE_CALL)
        return add_call(c, turn, block);
    return add_text(c, json_object_get(turn, "content"), json_object_get(block, "text"));
}

static bool convert_assistant(struct messages_conversion *c, size_t index, json_t *content)
{
    size_t i;
    json_t *block, *turn = turn_of(c, "assistant");
    place_at(c, index, 0);
    if (!turn)
        return false;
    if (json_is_string(content))
        return add_text(c, json_object_get(turn, "content"), content);
    if (!json_is_array(content))
        return refuse(c, " must be a string or a list of blocks.");
    json_array_foreach(content, i, block) {
        place_at(c, index, i);
        if (!add_assistant_block(c, block))
            return false;
        messages_mark(c->request, block, last_index(c), SIZE_MAX);
    }
    return true;
}

static bool add_system_block(struct messages_conversion *c, json_t *parts, json_t *block)
{
    const char *type = string_of(block, "type");
    if (!type)
        return refuse(c, " must be an object with a type.");
    const struct known_type *row = known_type_find(&messages_system_types, type);
    if (row->fate == TYPE_REFUSED)
        return known_type_refuse(row, c->at, type, c->why);
    if (row->kind == TYPE_TEXT)
        return add_text(c, parts, json_object_get(block, "text"));
    if (row->kind == TYPE_ADDITION || row->kind == TYPE_REMOVAL)
        return messages_change_tools(c, parts, block, row->kind == TYPE_ADDITION);
    known_type_note(c->request, &messages_system_types, type);
    return true;
}

static bool convert_late_system(struct messages_conversion *c, size_t index, json_t *content)
{
    size_t i;
    json_t *block, *turn = turn_of(c, "system"), *parts = json_object_get(turn, "content");
    place_at(c, index, 0);
    if (!turn || !add_break(c, parts))
        return false;
    if (json_is_string(content))
        return add_text(c, parts, content);
    json_array_foreach(content, i, block) {
        place_at(c, index, i);
        if (!add_system_block(c, parts, block))
            return false;
        messages_mark(c->request, block, last_index(c), SIZE_MAX);
    }
    return true;
}

static bool convert_message(struct messages_conversion *c, size_t index, const json_t *message)
{
    json_t *content = json_object_get(message, "content");
    snprintf(c->at, sizeof(c->at), "messages[%zu]", index);
    if (!json_is_string(content) && !json_is_array(content))
        return refuse(c, ".content must be a string or a list of blocks.");
    if (is_role(message, "assistant"))
        return convert_assistant(c, index, content);
    if (is_role(message, "user"))
        return convert_user(c, index, content);
    if (is_role(message, "system"))
        return convert_late_system(c, index, content);
    return refuse(c, ".role must be user, assistant or system.");
}

/* ---- system ---- */

static bool is_billing(const json_t *text)
{
    struct slice s = {json_string_value(text), json_string_length(text)};
    return slice_starts(s, SLICE(BILLING));
}

static bool add_system(struct messages_conversion *c, json_t *parts, json_t *system)
{
    size_t i, bytes = 0;
    json_t *block;
    if (json_is_string(system))
        return json_string_length(system) == 0 || is_billing(system) || add_text(c, parts, system);
    json_array_foreach(system, i, block) {
        json_t *text = json_object_get(block, "text");
        snprintf(c->at, sizeof(c->at), "system[%zu]", i);
        if (!is_type(block, "text"))
            return refuse(c, " must be a block of type \"text\".");
        if (i == 0 && is_billing(text))
            continue;
        if (!add_text(c, parts, text))
            return false;
        bytes += json_string_length(text);
        messages_mark(c->request, block, 0, bytes);
    }
    return true;
}

static bool convert_system(struct messages_conversion *c)
{
    json_t *system = json_object_get(c->request->root, "system"), *parts = json_array();
    bool ok = parts ? add_system(c, parts, system) : messages_no_memory(c);
    if (ok && json_array_size(parts) > 0)
        ok = append(c, c->request->gen.messages, json_pack("{sssO}", "role", "system", "content", parts));
    c->head = json_array_size(c->request->gen.messages);
    json_decref(parts);
    return ok;
}

/* ---- the end ---- */

/* With text of its own and without calls; else the reply is a new turn. */
static bool is_continued(const json_t *last)
{
    return is_role(last, "assistant") && !json_object_get(last, "tool_calls") &&
           json_string_length(json_object_get(last, "content")) > 0;
}

static bool finish(const struct messages_conversion *c)
{
    json_t *all = c->request->gen.messages, *message;
    size_t i;
    json_array_foreach(all, i, message) {
        bool whole = is_role(message, "assistant") || is_role(message, "system");
        if (!request_join_parts(message, "content", whole, c->memory) ||
            !request_join_parts(message, "reasoning_content", true, c->memory))
            return messages_no_memory(c);
    }
    c->request->gen.continues = is_continued(json_array_get(all, json_array_size(all) - 1));
    return true;
}

bool messages_convert_blocks(struct messages_conversion *c)
{
    struct request *r = c->request;
    json_t *given = json_incref(json_object_get(r->root, "messages")), *message;
    bool ok = json_object_set_new(r->root, "messages", json_array()) == 0 || messages_no_memory(c);
    size_t i;
    r->gen.messages = json_object_get(r->root, "messages");
    r->gen.system_stays = true;
    ok = ok && convert_system(c);
    json_array_foreach(given, i, message) {
        ok = ok && convert_message(c, i, message);
        if (!ok)
            break;
    }
    ok = ok && finish(c);
    json_decref(given);
    json_object_del(r->root, "system");
    return ok;
}
