/* tool_arguments.h - converts an argument that a model wrote as text to the JSON type of its tool's
 * schema. */
#ifndef PLATEAU_CHAT_TOOL_ARGUMENTS_H
#define PLATEAU_CHAT_TOOL_ARGUMENTS_H

#include "base/buf.h"

#include <jansson.h>

/* The value is the text itself, whatever it says: it may be passed on before it is complete. */
bool tool_argument_is_text(const json_t *tools, struct slice function, struct slice key);

/* Appends the JSON value of parameter `key` of `function` to ret. The type comes from the schema in `tools`
 * (an array of {"type": "function", "function": {...}} or of bare functions; NULL: none):
 *
 *     string, or no schema   the text, verbatim
 *     integer, number        a number when the text is one (3.0 becomes 3)
 *     boolean                true iff the text is "true" in any case
 *     object, array          parsed as JSON
 *     any but string         "null" is null
 *
 * Text that does not match the schema stays a string: the tool's own check decides. */
void tool_argument_write(struct buf *ret, const json_t *tools, struct slice function, struct slice key,
                         struct slice text);

#endif
