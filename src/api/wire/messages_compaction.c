/* messages_compaction.c - requests for a summary of the conversation, and the block that has it.
 *
 * `compaction` compacts at once; an edit of type compact_20260112 does from a number of tokens on, and also
 * where the context has no room left. Either way the reply is the block alone: an edit pauses there, and the
 * next request continues with the block. */
#include "api/request/compaction_words.h"
#include "api/request/field.h"
#include "api/wire/messages.h"

#include "base/json/json_out.h"
#include "gen/reject.h"

#include <string.h>

#define EDIT         "compact_20260112"
#define TRIGGER      150000                 /* tokens, where the edit names none */
#define TOOL_CHANGES "plateau:tool_changes" /* in the body: those of the block */

static bool is_type(const json_t *v, const char *type)
{
    return strcmp(field_string_in(v, "type"), type) == 0;
}

static bool is_text(const json_t *v)
{
    return !v || json_is_null(v) || json_is_string(v);
}

/* ---- the fields ---- */

bool messages_read_compaction(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    (void)r;
    if (!is_type(v, "summarize"))
        return reject_unsupported(why, f->name, "compaction must be an object of type \"summarize\".");
    return is_text(json_object_get(v, "instructions")) ||
           reject_value(why, f->name, "compaction.instructions must be a string.");
}

static bool check_edit(const json_t *edit, const char *param, struct reject *why)
{
    const json_t *trigger = json_object_get(edit, "trigger");
    int64_t tokens = 0;
    bool given = trigger && !json_is_null(trigger);
    if (!is_text(json_object_get(edit, "instructions")))
        return reject_value(why, param, "context_management.edits: instructions must be a string.");
    return !given ||
           (is_type(trigger, "input_tokens") &&
            field_integer_of(json_object_get(trigger, "value"), &tokens) && tokens > 0 &&
            tokens <= UINT32_MAX) ||
           reject_value(why, param,
                        "context_management.edits: trigger must be of type \"input_tokens\", with a value of "
                        "at least 1.");
}

/* Other edits leave parts of the conversation out, which changes its prefix: they have no effect. */
bool messages_read_edits(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    const json_t *edits = json_object_get(v, "edits"), *edit;
    bool other = json_array_size(edits) == 0;
    size_t i;
    json_array_foreach(edits, i, edit) {
        if (!is_type(edit, EDIT))
            other = true;
        else if (!check_edit(edit, f->name, why))
            return false;
    }
    if (other)
        field_note_ignored(r, f->name);
    return true;
}

/* ---- the block's changes of tools ---- */

static bool add_change(json_t *changes, const char *type, json_t *tool)
{
    return json_array_append_new(changes, json_pack("{ssso}", "type", type, "tool", tool)) == 0;
}

static json_t *reference(const char *name)
{
    return json_pack("{ssss}", "type", "tool_reference", "name", name);
}

static json_t *definition(const json_t *tool)
{
    const json_t *function = json_object_get(tool, "function");
    return json_pack("{sss{sOsOsO*}}", "type", "tool_definition", "definition", "name",
                     json_object_get(function, "name"), "input_schema",
                     json_object_get(function, "parameters"), "description",
                     json_object_get(function, "description"));
}

/* From the tools of the head to those in force. */
static json_t *changes_of(const struct tool_set *s)
{
    json_t *changes = json_array(), *tool, *at_head = json_object();
    const char *name;
    size_t i;
    bool ok = changes && at_head;
    json_array_foreach(s->head, i, tool) {
        name = field_string_in(json_object_get(tool, "function"), "name");
        ok = ok && json_object_set(at_head, name, tool) == 0 &&
             (json_object_get(s->force, name) || add_change(changes, "tool_removal", reference(name)));
    }
    json_object_foreach(s->force, name, tool) {
        bool declared = json_equal(json_object_get(s->declared, name), tool) == 1;
        if (ok && json_equal(json_object_get(at_head, name), tool) != 1)
            ok = add_change(changes, "tool_addition", declared ? reference(name) : definition(tool));
    }
    json_decref(at_head);
    if (ok)
        return changes;
    json_decref(changes);
    return NULL;
}

/* ---- the request ---- */

static const json_t *find_edit(const json_t *root)
{
    const json_t *edits = json_object_get(json_object_get(root, "context_management"), "edits"), *edit;
    size_t i;
    json_array_foreach(edits, i, edit)
        if (is_type(edit, EDIT))
            return edit;
    return NULL;
}

static bool ask(struct messages_conversion *c, const json_t *by, uint32_t at)
{
    struct gen_request *g = &c->request->gen;
    g->compaction =
        (struct gen_compaction){compaction_words(json_object_get(by, "instructions")), at, at == 0};
    return (g->compaction.ask &&
            json_object_set_new(c->request->root, TOOL_CHANGES, changes_of(&c->set)) == 0) ||
           messages_no_memory(c);
}

/* A reply that continues a text is never long enough to be compacted. */
bool messages_ask_summary(struct messages_conversion *c)
{
    const json_t *root = c->request->root, *now = json_object_get(root, "compaction"),
                 *edit = find_edit(root);
    int64_t tokens = TRIGGER;
    bool given = now && !json_is_null(now);
    if (given && edit)
        return reject_value(c->why, "compaction", "compaction and context_management exclude each other.");
    if (given)
        return ask(c, now, 0);
    if (!edit || c->request->gen.continues)
        return true;
    field_integer_of(json_object_get(json_object_get(edit, "trigger"), "value"), &tokens);
    return ask(c, edit, (uint32_t)tokens);
}

/* ---- the reply ---- */

void messages_write_compaction(const struct request *r, struct slice text, const char *key,
                               struct json_out *j)
{
    json_open(j, key);
    json_put_string(j, "type", "compaction");
    if (text.len > 0)
        json_put_text(j, "content", text);
    else
        json_put_null(j, "content");
    json_put_value(j, "tool_changes", json_object_get(r->root, TOOL_CHANGES));
    json_close(j);
}
