/* tool_grammar.h - the replies of a chat model that has tools, as one grammar: reasoning, text and calls.
 *
 * The source is JSON, written by chat/tool_source.c: the format's markers, the tools, and whether calls are
 * required. A marker is a list of texts and of ids of special tokens. White space may stand where the parser
 * of replies (chat/chat_format.h) skips it.
 *
 *     required   [reasoning] call...
 *     not        [reasoning] text [call... text]..., where text does not have what begins a call
 *
 * Arguments are any JSON object or, of a strict tool, an instance of its schema. Of a required call, too, if
 * the schema is supported and there are at most TOOL_SCHEMAS_MAX tools. Where a format writes values as text
 * (tagged), a string stands raw. Tagged, Python and braced arguments have the properties that the schema
 * names, in its order; strict ones of these are refused if the schema needs more than that at its top. A tool
 * with `lark` has one parameter, `input`, a text of that grammar. */
#ifndef PLATEAU_CONSTRAINT_TOOL_GRAMMAR_H
#define PLATEAU_CONSTRAINT_TOOL_GRAMMAR_H

#include "grammar/grammar.h"

#include <jansson.h>

struct schema_opts;

#define TOOL_SCHEMAS_MAX 16
#define TOOL_COUNT_MAX   1024

/* As `schema_compile()`, but of tool calls. Schemas of strict tools are refused by the tool's name. */
int tool_grammar_compile(struct grammar_builder *b, const json_t *source, const struct schema_opts *opts,
                         sym_id *ret, struct err *e);

#endif
