/* tool_source.h - what a grammar of a model's replies with tool calls is made from, as one JSON text: the
 * chat format, the tools, and how many calls there may be. constraint/tool_grammar.h reads it.
 *
 * Plain text, so that its hash is the identity of the grammar. */
#ifndef PLATEAU_CHAT_TOOL_SOURCE_H
#define PLATEAU_CHAT_TOOL_SOURCE_H

#include <jansson.h>
#include <stdbool.h>

struct buf;
struct chat_syntax;

struct tool_source_opts {
    const struct chat_syntax *syntax;
    const json_t *tools; /* tools of the request, see chat_parser_opts.tools */
    /* Objects by the tool's name. */
    const json_t *names;  /* the tools that may be called; NULL: all */
    const json_t *strict; /* whose arguments follow the schema; NULL: none */
    const json_t *larks;  /* Lark grammars of `input`, the only parameter; NULL: none */
    /* Without calls the reply is a JSON object (object), or JSON of this schema: JSON, or a string that has
     * it. */
    const json_t *schema;
    bool object;
    bool required;     /* the reply is calls; false: text, and calls where the model begins one */
    bool parallel;     /* more than one call */
    bool in_reasoning; /* the prompt ends inside reasoning */
    bool by_token;     /* see chat_parser_opts.by_token */
};

/* Whether the format has calls: content only does not. */
bool tool_source_supports(const struct chat_syntax *syntax);
/* Whether the text of its replies may have a schema. */
bool tool_source_takes_schema(const struct chat_syntax *syntax);
void tool_source_write(const struct tool_source_opts *opts, struct buf *ret);

#endif
