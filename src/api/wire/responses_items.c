/* responses_items.c - the items of Responses, as messages that templates expect.
 *
 * Items of the assistant in a row (reasoning, messages, calls) become one turn, as the model wrote it, so a
 * reply that comes back renders as the text that is in the prefix cache. Messages of the system or developer
 * before all others join the instructions; later ones stay at their place, or join the user's turn there
 * (gen/prompt.c), since moving them to the front would change the prefix. Items of tools that other servers
 * run are dropped. */
#include "api/reasoning_seal.h"
#include "api/request/compaction_words.h"
#include "api/request/custom_tool.h"
#include "api/request/field.h"
#include "api/request/known_types.h"
#include "api/responses_store.h"
#include "api/wire/responses.h"

#include "base/json/json_write.h"
#include "gen/reject.h"

#include <stdio.h>

static bool is_role(const json_t *message, const char *role)
{
    return strcmp(field_string_in(message, "role"), role) == 0;
}

static bool refuse(const struct responses_conversion *c, const char *what)
{
    return reject_value(c->why, c->at, "%s%s", c->at, what);
}

/* ---- turns ---- */

/* The last message, when it has this role, or a new one; borrowed. NULL: no memory. */
static json_t *turn_of(const struct responses_conversion *c, const char *role)
{
    json_t *all = c->request->gen.messages, *last = json_array_get(all, json_array_size(all) - 1);
    if (json_array_size(all) > 0 && is_role(last, role))
        return last;
    last = json_pack("{sss[]}", "role", role, "content");
    if (json_array_append_new(all, last) < 0) {
        responses_no_memory(c);
        return NULL;
    }
    return last;
}

/* The list of that name; NULL: no memory. */
static json_t *list_of(const struct responses_conversion *c, json_t *message, const char *name)
{
    if (!json_object_get(message, name) && json_object_set_new(message, name, json_array()) < 0)
        responses_no_memory(c);
    return json_object_get(message, name);
}

/* A line between the texts of messages that become one. */
static bool add_break(const struct responses_conversion *c, json_t *parts)
{
    return json_array_size(parts) == 0 || json_array_append_new(parts, request_glue("\n\n")) == 0 ||
           responses_no_memory(c);
}

/* ---- messages ---- */

static bool add_separate(struct responses_conversion *c, const char *role, json_t *content)
{
    json_t *turn = turn_of(c, role), *parts = json_object_get(turn, "content");
    return turn && add_break(c, parts) && responses_add_content(c, parts, content);
}

/* The first one behind the instructions may differ after a client's compaction: they end at a mark. */
static bool add_system(struct responses_conversion *c, json_t *content)
{
    size_t bytes = json_string_length(json_object_get(c->request->root, "instructions"));
    if (bytes > 0 && json_array_size(c->request->gen.messages) == 1)
        request_mark(c->request, 0, bytes);
    return add_separate(c, "system", content);
}

/* A compacted conversation has its messages of the user, as the API's other lists have them. */
static bool keep_user(const struct responses_conversion *c, json_t *content)
{
    struct buf *kept = &c->request->kept;
    if (!c->request->form->compacts)
        return true;
    json_t *parts = json_is_string(content) ? json_pack("[{sssO}]", "type", "input_text", "text", content)
                                            : json_incref(content);
    json_t *item = json_pack("{sssssO}", "type", "message", "role", "user", "content", parts);
    json_decref(parts);
    if (kept->len > 0)
        buf_puts(kept, RESPONSES_BETWEEN);
    if (item)
        json_write_value(kept, item);
    bool ok = item && kept->error == 0;
    json_decref(item);
    return ok || responses_no_memory(c);
}

static bool convert_user(struct responses_conversion *c, json_t *content)
{
    return add_separate(c, "user", content) && keep_user(c, content);
}

static bool convert_message(struct responses_conversion *c, const json_t *item)
{
    json_t *content = json_object_get(item, "content"), *turn;
    if (is_role(item, "assistant")) {
        turn = turn_of(c, "assistant");
        return turn && responses_add_content(c, json_object_get(turn, "content"), content);
    }
    if (is_role(item, "system") || is_role(item, "developer"))
        return add_system(c, content);
    if (is_role(item, "user"))
        return convert_user(c, content);
    return refuse(c, ".role must be user, system, developer or assistant.");
}

/* ---- reasoning ---- */

static bool add_reasoning(struct responses_conversion *c, struct slice text)
{
    json_t *turn = turn_of(c, "assistant"), *list = turn ? list_of(c, turn, "reasoning_content") : NULL;
    return list && responses_add_words(c, list, text);
}

/* True: the item has sealed text of this server, which was added. */
static bool unseal(struct responses_conversion *c, const json_t *item, bool *failed)
{
    const json_t *sealed = json_object_get(item, "encrypted_content");
    struct charge charge = request_memory_charge(c->memory);
    struct buf text;
    buf_init(&text, SIZE_MAX / 4, &charge);
    bool ok = json_is_string(sealed) &&
              reasoning_unseal((struct slice){json_string_value(sealed), json_string_length(sealed)}, &text);
    *failed = (text.error && !responses_no_memory(c)) || (ok && !add_reasoning(c, buf_slice(&text)));
    buf_done(&text);
    return ok;
}

/* The sealed text is the exact one; else that of the content, else of the summary. */
static bool convert_reasoning(struct responses_conversion *c, const json_t *item)
{
    json_t *content = json_object_get(item, "content"), *turn;
    bool failed;
    if (unseal(c, item, &failed) || failed)
        return !failed;
    if (json_array_size(content) == 0)
        content = json_object_get(item, "summary");
    if (json_array_size(content) == 0)
        return true;
    turn = turn_of(c, "assistant");
    json_t *list = turn ? list_of(c, turn, "reasoning_content") : NULL;
    return list && responses_add_content(c, list, content);
}

/* ---- calls ---- */

static bool add_call(struct responses_conversion *c, const json_t *id, const char *name, json_t *arguments)
{
    json_t *turn = turn_of(c, "assistant"), *list = turn ? list_of(c, turn, "tool_calls") : NULL;
    json_t *function = list && arguments ? json_pack("{sssO}", "name", name, "arguments", arguments) : NULL;
    bool ok =
        function && (json_is_object(arguments) || request_read_arguments(function, c->limits, c->memory));
    ok = ok &&
         json_array_append_new(
             list, json_pack("{sOsssO}", "id", id, "type", "function", "function", function)) == 0 &&
         json_object_set(c->names, json_string_value(id), json_object_get(function, "name")) == 0;
    json_decref(function);
    return ok || responses_no_memory(c);
}

static bool convert_call(struct responses_conversion *c, const json_t *item, const json_t *id)
{
    char name[RESPONSES_NAME_BYTES];
    json_t *arguments = json_object_get(item, "arguments");
    const char *space = json_string_value(json_object_get(item, "namespace"));
    if (field_string_in(item, "name")[0] == 0 || !json_is_string(arguments) ||
        !responses_flat_name(space, field_string_in(item, "name"), name))
        return refuse(c, " must have call_id, name and arguments as strings.");
    return add_call(c, id, name, arguments);
}

static bool convert_custom(struct responses_conversion *c, const json_t *item, const json_t *id)
{
    char name[RESPONSES_NAME_BYTES];
    json_t *input = json_object_get(item, "input");
    const char *space = json_string_value(json_object_get(item, "namespace"));
    if (field_string_in(item, "name")[0] == 0 || !json_is_string(input) ||
        !responses_flat_name(space, field_string_in(item, "name"), name))
        return refuse(c, " must have call_id, name and input as strings.");
    json_t *arguments = custom_tool_arguments(input);
    bool ok = add_call(c, id, name, arguments);
    json_decref(arguments);
    return ok;
}

static bool convert_shell(struct responses_conversion *c, const json_t *item, const json_t *id)
{
    json_t *action = json_object_get(item, "action");
    if (!json_is_object(action))
        return refuse(c, ".action must be an object.");
    return add_call(c, id, "local_shell", action);
}

static bool convert_output(struct responses_conversion *c, const json_t *item, json_t *id)
{
    json_t *parts = json_array(), *name = json_object_get(c->names, json_string_value(id));
    json_t *message =
        parts ? json_pack("{sssOsO}", "role", "tool", "tool_call_id", id, "content", parts) : NULL;
    bool ok = message && (!name || json_object_set(message, "name", name) == 0) &&
              json_array_append(c->request->gen.messages, message) == 0;
    json_decref(message);
    if (!ok)
        responses_no_memory(c);
    ok = ok && responses_add_content(c, parts, json_object_get(item, "output"));
    json_decref(parts);
    return ok;
}

/* ---- tools that items bring ---- */

static bool add_tools(struct responses_conversion *c, const json_t *item)
{
    json_t *turn = turn_of(c, "system"), *parts = json_object_get(turn, "content");
    return turn && add_break(c, parts) &&
           responses_bring_tools(c, parts, json_object_get(item, "tools"),
                                 "More tools are available from here on:\n");
}

/* Converts the output of a search: a result, or a message of the system if a server ran the search. */
static bool convert_found(struct responses_conversion *c, const json_t *item)
{
    json_t *id = json_object_get(item, "call_id"), *all = c->request->gen.messages;
    if (!json_is_string(id))
        return add_tools(c, item);
    json_t *message =
        json_pack("{sssOsss[]}", "role", "tool", "tool_call_id", id, "name", RESPONSES_SEARCH, "content");
    if (json_array_append_new(all, message) < 0)
        return responses_no_memory(c);
    json_t *parts = json_object_get(message, "content");
    return responses_bring_tools(c, parts, json_object_get(item, "tools"), NULL) &&
           (json_array_size(parts) > 0 || responses_add_words(c, parts, SLICE("No tools were found.")));
}

static bool convert_search(struct responses_conversion *c, const json_t *item)
{
    json_t *id = json_object_get(item, "call_id"), *arguments = json_object_get(item, "arguments");
    if (!json_is_string(id)) {
        known_type_note(c->request, &responses_item_types, "tool_search_call");
        return true;
    }
    if (!json_is_string(arguments) && !json_is_object(arguments))
        return refuse(c, ".arguments must be an object.");
    return add_call(c, id, RESPONSES_SEARCH, arguments);
}

/* ---- compaction ---- */

/* A summary that another server made, or that is damaged. */
#define UNREADABLE "[A summary of the conversation until here was made by another server. It cannot be read.]"

/* The summary's text as a message of the user. */
static bool add_summary(struct responses_conversion *c, struct slice text, bool readable)
{
    json_t *turn = turn_of(c, "user"), *parts = json_object_get(turn, "content");
    return turn && add_break(c, parts) &&
           (!readable || json_array_append_new(parts, request_glue(COMPACTION_SUMMARY)) == 0 ||
            responses_no_memory(c)) &&
           responses_add_words(c, parts, text);
}

/* Everything before a trigger leaves, but for the message of the system at the start: its compaction stands
 * for it. Clients that keep their own conversation send neither. */
static bool drop_before(struct responses_conversion *c)
{
    json_t *all = c->request->gen.messages;
    size_t head = json_array_size(all) > 0 && is_role(json_array_get(all, 0), "system");
    request_drop_messages(c->request, head);
    json_t *turn = turn_of(c, "user");
    return turn &&
           (tool_set_carry(&c->set, "These tools are available:\n", json_object_get(turn, "content")) ||
            responses_no_memory(c));
}

static bool convert_summary(struct responses_conversion *c, const json_t *item, bool triggered)
{
    const json_t *sealed = json_object_get(item, "encrypted_content");
    struct charge charge = request_memory_charge(c->memory);
    struct buf text;
    if (!json_is_string(sealed))
        return refuse(c, ".encrypted_content must be a string.");
    buf_init(&text, SIZE_MAX / 4, &charge);
    bool read = summary_unseal((struct slice){json_string_value(sealed), json_string_length(sealed)}, &text);
    bool ok = text.error == 0 || responses_no_memory(c);
    if (!read)
        known_type_note(c->request, &responses_item_types, "compaction");
    ok = ok && (!read || !triggered || drop_before(c)) &&
         add_summary(c, read ? buf_slice(&text) : SLICE(UNREADABLE), read);
    buf_done(&text);
    return ok;
}

static bool ask_summary(const struct responses_conversion *c)
{
    struct gen_compaction *asked = &c->request->gen.compaction;
    *asked = (struct gen_compaction){.ask = compaction_words(NULL), .on = true};
    return asked->ask || responses_no_memory(c);
}

static bool convert_trigger(struct responses_conversion *c)
{
    c->triggered = true;
    return !c->last || ask_summary(c);
}

/* ---- items ---- */

static json_t *call_id(const json_t *item, const char *type)
{
    json_t *id = json_object_get(item, "call_id");
    bool shell = strcmp(type, "local_shell_call_output") == 0; /* its id is that of the call */
    return json_is_string(id) || !shell ? id : json_object_get(item, "id");
}

/* A call, or its output. */
static bool convert_step(struct responses_conversion *c, const json_t *item, const char *type,
                         enum type_kind kind)
{
    json_t *id = call_id(item, type);
    if (!json_is_string(id))
        return refuse(c, " must have a call_id.");
    if (kind == TYPE_RESULT)
        return convert_output(c, item, id);
    if (kind == TYPE_CUSTOM)
        return convert_custom(c, item, id);
    return kind == TYPE_SHELL ? convert_shell(c, item, id) : convert_call(c, item, id);
}

static bool convert_item(struct responses_conversion *c, const json_t *item, size_t index)
{
    const char *type = field_string_in(item, "type");
    bool triggered = c->triggered;
    c->triggered = false;
    snprintf(c->at, sizeof(c->at), "input[%zu]", index);
    if (type[0] == 0 && field_string_in(item, "role")[0])
        return convert_message(c, item);
    if (type[0] == 0)
        return refuse(c, " must be an object with a type or a role.");
    const struct known_type *row = known_type_find(&responses_item_types, type);
    switch (row->kind) {
    case TYPE_MESSAGE:
        return convert_message(c, item);
    case TYPE_THINKING:
        return convert_reasoning(c, item);
    case TYPE_ADDITION:
        return add_tools(c, item);
    case TYPE_SEARCH:
        return convert_search(c, item);
    case TYPE_FOUND:
        return convert_found(c, item);
    case TYPE_TRIGGER:
        return convert_trigger(c);
    case TYPE_COMPACTION:
        return convert_summary(c, item, triggered);
    case TYPE_CALL:
    case TYPE_CUSTOM:
    case TYPE_SHELL:
    case TYPE_RESULT:
        return convert_step(c, item, type, row->kind);
    default: /* references were resolved: responses_reference.c */
        known_type_note(c->request, &responses_item_types, type);
        return true;
    }
}

static bool convert_instructions(struct responses_conversion *c)
{
    json_t *instructions = json_object_get(c->request->root, "instructions");
    snprintf(c->at, sizeof(c->at), "instructions");
    return json_string_length(instructions) == 0 || add_separate(c, "system", instructions);
}

static bool convert_previous(struct responses_conversion *c)
{
    json_t *items = NULL, *item;
    bool ok = responses_previous(c, &items);
    size_t i;
    json_array_foreach(items, i, item) {
        ok = ok && convert_item(c, item, i);
        if (!ok)
            break;
    }
    json_decref(items);
    return ok;
}

static bool convert_input(struct responses_conversion *c)
{
    json_t *input = json_object_get(c->request->root, "input"), *item;
    size_t i;
    snprintf(c->at, sizeof(c->at), "input");
    if (json_is_string(input))
        return convert_user(c, input);
    json_array_foreach(input, i, item) {
        c->last = i + 1 == json_array_size(input);
        if (!convert_item(c, item, i))
            return false;
    }
    return true;
}

/* On one route, the reply is always a summary. */
static bool end_input(const struct responses_conversion *c)
{
    const struct request *r = c->request;
    return !r->form->compacts || r->gen.compaction.ask || ask_summary(c);
}

static bool join_all(const struct responses_conversion *c)
{
    json_t *message;
    size_t i;
    json_array_foreach(c->request->gen.messages, i, message)
        if (!request_join_parts(message, "content", is_role(message, "assistant"), c->memory) ||
            !request_join_parts(message, "reasoning_content", true, c->memory))
            return responses_no_memory(c);
    return json_array_size(c->request->gen.messages) > 0 ||
           reject_value(c->why, "input", "input has no message.");
}

bool responses_convert_items(struct responses_conversion *c)
{
    struct request *r = c->request;
    if (json_object_set_new(r->root, "messages", json_array()) < 0)
        return responses_no_memory(c);
    r->gen.messages = json_object_get(r->root, "messages");
    r->gen.system_stays = true;
    return convert_instructions(c) && convert_previous(c) && convert_input(c) && end_input(c) && join_all(c);
}
