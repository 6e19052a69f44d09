#include "api/request/known_types.h"

#include "api/request/field.h"

#include "base/check.h"
#include "gen/reject.h"

#include <stdio.h>
#include <string.h>

#define TYPE_BYTES_MAX 64 /* bytes of a type in a text */

#define CLIENT_TOOL     "offered with a schema of the server; the client runs it"
#define NO_SERVER_TOOLS "the server runs no tools. Offer a tool of your own with an input_schema"

/* ---- Messages ---- */

static const struct known_type user_types[] = {
    {"text", TYPE_CONVERTED, TYPE_TEXT, "its text"},
    {"image", TYPE_CONVERTED, TYPE_IMAGE, "an image, with a source as [images.md](images.md) allows"},
    {"document", TYPE_CONVERTED, TYPE_DOCUMENT, "its title, context and text; PDF and files are refused"},
    {"search_result", TYPE_CONVERTED, TYPE_SEARCH_RESULT, "its title, source and text"},
    {"tool_result", TYPE_CONVERTED, TYPE_RESULT, "a tool message, before the other blocks"},
    {"tool_reference", TYPE_CONVERTED, TYPE_REFERENCE,
     "the tool's definition, or its name where the prompt has it"},
    {"container_upload", TYPE_REFUSED, TYPE_OTHER, "the server has no containers. Send the file's text"},
    {"*_tool_result", TYPE_IGNORED, TYPE_OTHER, "a result of a tool that another server ran"},
    {"*", TYPE_AS_TEXT, TYPE_OTHER, "its `text`, else a line that it was left out"},
};

static const struct known_type assistant_types[] = {
    {"text", TYPE_CONVERTED, TYPE_TEXT, "its text"},
    {"thinking", TYPE_CONVERTED, TYPE_THINKING, "reasoning"},
    {"tool_use", TYPE_CONVERTED, TYPE_CALL, "a call"},
    {"compaction", TYPE_CONVERTED, TYPE_COMPACTION,
     "a summary as a user message, in place of all messages before it, and its `tool_changes`"},
    {"*", TYPE_IGNORED, TYPE_OTHER,
     "such as `redacted_thinking`, `server_tool_use`, `mcp_tool_use`, their results, `fallback`"},
};

static const struct known_type system_types[] = {
    {"text", TYPE_CONVERTED, TYPE_TEXT, "its text"},
    {"image", TYPE_REFUSED, TYPE_OTHER, "a message of the system has text alone"},
    {"tool_addition", TYPE_CONVERTED, TYPE_ADDITION,
     "the definition of its `tool`, a `tool_reference` or a `tool_definition`: the tool is offered from "
     "there on"},
    {"tool_removal", TYPE_CONVERTED, TYPE_REMOVAL,
     "a line that its `tool`, a `tool_reference`, is no longer offered"},
    {"*", TYPE_IGNORED, TYPE_OTHER, "any other"},
};

static const struct known_type message_tools[] = {
    {"custom", TYPE_CONVERTED, TYPE_FUNCTION, "offered; the same without a `type`"},
    {"computer_toolset_*", TYPE_CONVERTED, TYPE_TOOLSET,
     "each member that `configs` leaves enabled is offered as a tool; calls have `toolset_name`"},
    {"bash_*", TYPE_CONVERTED, TYPE_CLIENT_TOOL, CLIENT_TOOL},
    {"text_editor_*", TYPE_CONVERTED, TYPE_CLIENT_TOOL, CLIENT_TOOL},
    {"computer_*", TYPE_CONVERTED, TYPE_CLIENT_TOOL, CLIENT_TOOL},
    {"memory_*", TYPE_CONVERTED, TYPE_CLIENT_TOOL, CLIENT_TOOL},
    {"web_search_*", TYPE_REFUSED, TYPE_OTHER, NO_SERVER_TOOLS},
    {"web_fetch_*", TYPE_REFUSED, TYPE_OTHER, NO_SERVER_TOOLS},
    {"code_execution_*", TYPE_REFUSED, TYPE_OTHER, NO_SERVER_TOOLS},
    {"mcp_toolset", TYPE_REFUSED, TYPE_OTHER, "the server calls no MCP servers"},
    {"*", TYPE_IGNORED, TYPE_OTHER,
     "such as `tool_search_tool_*`, `advisor_*`, `browser_toolset_*`; with an `input_schema` it is offered"},
};

/* Names in the header anthropic-beta and the field `betas`. No feature waits for its name. */
static const struct known_type beta_types[] = {
    {"claude-code-*", TYPE_CONVERTED, TYPE_FEATURE, "the client's name"},
    {"interleaved-thinking-*", TYPE_CONVERTED, TYPE_FEATURE, "`thinking` between the calls of a turn"},
    {"context-management-*", TYPE_CONVERTED, TYPE_FEATURE, "`context_management`"},
    {"compact-*", TYPE_CONVERTED, TYPE_FEATURE, "`context_management`"},
    {"mid-conversation-tool-changes-*", TYPE_CONVERTED, TYPE_FEATURE, "`tool_addition`, `tool_removal`"},
    {"inline-tools-*", TYPE_CONVERTED, TYPE_FEATURE, "`tool_addition`, `tool_removal`"},
    {"advanced-tool-use-*", TYPE_CONVERTED, TYPE_FEATURE, "`defer_loading`, `tool_reference`"},
    {"tool-search-tool-*", TYPE_CONVERTED, TYPE_FEATURE, "`defer_loading`, `tool_reference`"},
    {"computer-use-*", TYPE_CONVERTED, TYPE_FEATURE, "`computer_*`"},
    {"effort-*", TYPE_CONVERTED, TYPE_FEATURE, "`output_config`"},
    {"structured-outputs-*", TYPE_CONVERTED, TYPE_FEATURE, "`output_config`"},
    {"extended-cache-ttl-*", TYPE_CONVERTED, TYPE_FEATURE, "`cache_control`"},
    {"prompt-caching-2*", TYPE_CONVERTED, TYPE_FEATURE, "`cache_control`"},
    {"cache-diagnosis-*", TYPE_CONVERTED, TYPE_FEATURE, "`diagnostics`"},
    {"thinking-token-count-*", TYPE_IGNORED, TYPE_OTHER, "reasoning is sent as text"},
    {"thinking-display-updates-*", TYPE_IGNORED, TYPE_OTHER, "reasoning is sent as text"},
    {"*", TYPE_IGNORED, TYPE_OTHER, "such as `context-1m-*`, `fast-mode-*`"},
};

/* ---- Responses ---- */

static const struct known_type item_types[] = {
    {"message", TYPE_CONVERTED, TYPE_MESSAGE, "a message; the same without a `type` but with a role"},
    {"reasoning", TYPE_CONVERTED, TYPE_THINKING, "reasoning of the assistant's turn"},
    {"function_call", TYPE_CONVERTED, TYPE_CALL, "a call of the assistant's turn"},
    {"custom_tool_call", TYPE_CONVERTED, TYPE_CUSTOM, "a call of the assistant's turn"},
    {"local_shell_call", TYPE_CONVERTED, TYPE_SHELL, "a call of the assistant's turn"},
    {"function_call_output", TYPE_CONVERTED, TYPE_RESULT, "a tool message"},
    {"custom_tool_call_output", TYPE_CONVERTED, TYPE_RESULT, "a tool message"},
    {"local_shell_call_output", TYPE_CONVERTED, TYPE_RESULT, "a tool message"},
    {"tool_search_call", TYPE_CONVERTED, TYPE_SEARCH, "a call of the client's search for tools"},
    {"tool_search_output", TYPE_CONVERTED, TYPE_FOUND, "a tool message with the definitions of its `tools`"},
    {"additional_tools", TYPE_CONVERTED, TYPE_ADDITION,
     "a message of the system with the definitions of its `tools`, which are offered from there on"},
    {"item_reference", TYPE_CONVERTED, TYPE_REFERENCE,
     "the stored item of that `id`, else 404 `item_not_found`; the same for an object of an `id` alone"},
    {"compaction_trigger", TYPE_CONVERTED, TYPE_TRIGGER,
     "at the end: the reply is a `compaction`, see below"},
    {"compaction", TYPE_CONVERTED, TYPE_COMPACTION, "its summary, as a user message"},
    {"compaction_summary", TYPE_CONVERTED, TYPE_COMPACTION, "its summary, as a user message"},
    {"*", TYPE_IGNORED, TYPE_OTHER, "such as `web_search_call`, `mcp_call`"},
};

static const struct known_type part_types[] = {
    {"input_text", TYPE_CONVERTED, TYPE_TEXT, "its text"},
    {"output_text", TYPE_CONVERTED, TYPE_TEXT, "its text"},
    {"text", TYPE_CONVERTED, TYPE_TEXT, "its text"},
    {"summary_text", TYPE_CONVERTED, TYPE_TEXT, "its text"},
    {"reasoning_text", TYPE_CONVERTED, TYPE_TEXT, "its text"},
    {"refusal", TYPE_CONVERTED, TYPE_TEXT, "its `refusal`"},
    {"input_image", TYPE_CONVERTED, TYPE_IMAGE, "an image, with an `image_url`: [images.md](images.md)"},
    {"input_file", TYPE_CONVERTED, TYPE_DOCUMENT,
     "text as `data:text/plain;base64,...`; PDF and stored files are refused"},
    {"input_audio", TYPE_REFUSED, TYPE_OTHER, "the server takes no audio. Send a text of it"},
    {"*", TYPE_AS_TEXT, TYPE_OTHER, "its `text`, else a line that it was left out"},
};

static const struct known_type response_tools[] = {
    {"function", TYPE_CONVERTED, TYPE_FUNCTION, "offered; with `strict` arguments follow the schema"},
    {"custom", TYPE_CONVERTED, TYPE_CUSTOM,
     "offered as a function with one string, `input`; calls are `custom_tool_call`. The input follows the "
     "tool's `regex` or `lark` grammar"},
    {"namespace", TYPE_CONVERTED, TYPE_NAMESPACE,
     "its functions are offered with the namespace before their name; calls have `namespace`"},
    {"tool_search", TYPE_CONVERTED, TYPE_SEARCH,
     "with `execution` `client` offered as a function; calls are `tool_search_call`. Else left out"},
    {"*", TYPE_IGNORED, TYPE_OTHER, "such as `web_search`, `file_search`, `mcp`, `local_shell`"},
};

/* ---- tables ---- */

#define TABLE(title, param, rows)                                                                            \
    {                                                                                                        \
        title, "in the prompt", param, rows, COUNT_OF(rows)                                                  \
    }

const struct type_table messages_user_types =
                            TABLE("blocks of a user, of a tool's result", "messages", user_types),
                        messages_assistant_types =
                            TABLE("blocks of the assistant", "messages", assistant_types),
                        messages_system_types = TABLE("blocks of the system", "messages", system_types),
                        messages_tool_types = TABLE("tools of Messages", "tools", message_tools),
                        messages_beta_types = {"betas of Messages", "what is there", "anthropic-beta",
                                               beta_types, COUNT_OF(beta_types)};
const struct type_table responses_item_types = TABLE("items of the input", "input", item_types),
                        responses_part_types = TABLE("parts of an item", "input", part_types),
                        responses_tool_types = TABLE("tools of Responses", "tools", response_tools);

const struct type_table *const known_type_tables[KNOWN_TYPE_TABLES] = {
    &responses_item_types,     &responses_part_types,  &responses_tool_types, &messages_user_types,
    &messages_assistant_types, &messages_system_types, &messages_tool_types,  &messages_beta_types};

static bool matches(const char *pattern, struct slice type)
{
    const char *star = strchr(pattern, '*');
    if (!star)
        return slice_eq(slice_of(pattern), type);
    struct slice head = {pattern, (size_t)(star - pattern)}, tail = slice_of(star + 1);
    return type.len >= head.len + tail.len && slice_starts(type, head) && slice_ends(type, tail);
}

const struct known_type *known_type_find(const struct type_table *t, const char *type)
{
    size_t i = 0;
    while (i + 1 < t->count && !matches(t->rows[i].name, slice_of(type)))
        i++;
    ASSERT(matches(t->rows[i].name, slice_of(type)));
    return &t->rows[i];
}

void known_type_note(struct request *r, const struct type_table *t, const char *type)
{
    char name[96];
    snprintf(name, sizeof(name), "%s.%.64s", t->param, type);
    field_note_ignored(r, name);
}

bool known_type_refuse(const struct known_type *row, const char *at, const char *type, struct reject *why)
{
    ASSERT(row->fate == TYPE_REFUSED);
    return reject_unsupported(why, at, "%s: the type \"%.64s\" is not supported: %s.", at, type, row->say);
}

json_t *known_type_text(const json_t *object, const char *type)
{
    json_t *text = json_object_get(object, "text");
    if (json_is_string(text))
        return json_incref(text);
    size_t len = strnlen(type, TYPE_BYTES_MAX);
    while (len > 0 && ((unsigned char)type[len] & 0xc0) == 0x80) /* between characters */
        len--;
    return json_sprintf("[A part of type \"%.*s\" was left out here.]", (int)len, type);
}
