/* structural.h - structural tags to rules: texts with tagged parts, as XGrammar and vLLM describe them.
 *
 *     {"type": "structural_tag", "format": FORMAT}
 *     {"type": "structural_tag", "structures": [{"begin", "schema", "end"}], "triggers": [TEXT]}
 *
 * The second, older form is triggered_tags with a JSON schema in each tag. Formats:
 *   - const_string {value}, json_schema {json_schema}, regex {pattern}, grammar {grammar: GBNF or Lark},
 *     any_text {excludes}, token {token: the text of an added token};
 *   - sequence, or {elements}; optional, star, plus {content}; repeat {min, max, content}, max -1: no limit;
 *   - tag {begin, content, end}: `end` is a text or a list of texts;
 *   - triggered_tags {triggers, tags, at_least_one, stop_after_first, excludes}: text until a trigger, then a
 *     tag that begins with it. With at_least_one the first tag begins the output;
 *   - tags_with_separator {tags, separator, at_least_one, stop_after_first};
 *   - dispatch {rules: [[TEXT, FORMAT]], loop, excludes}.
 *
 * Free text within a tag never has the tag's end. An added token of the vocabulary stands for its text. Other
 * formats and members are refused by name. */
#ifndef PLATEAU_CONSTRAINT_STRUCTURAL_H
#define PLATEAU_CONSTRAINT_STRUCTURAL_H

#include "grammar/grammar.h"

#include <jansson.h>
#include <stddef.h>

struct schema_opts;

#define STRUCTURAL_DEPTH_MAX      32   /* formats within formats */
#define STRUCTURAL_FORMATS_MAX    4096 /* formats and tags together */
#define STRUCTURAL_TEXT_BYTES_MAX 4096 /* bytes of a begin, an end, a trigger, a text that is excluded */
#define STRUCTURAL_STOPS_MAX      128  /* texts that one free text may not have */
#define STRUCTURAL_COMPARED_MAX   (1u << 24)

/* The added tokens of a vocabulary. */
struct structural_tokens {
    /* The bytes of the longest token at the start of `text`, and its id; 0: no token. */
    size_t (*find)(void *arg, struct slice text, uint32_t *id);
    void *arg;
};

/* As `schema_compile()`, but of structural tags; `e` names the place. `tokens` NULL: everything is text. */
int structural_compile(struct grammar_builder *b, const json_t *source, const struct schema_opts *opts,
                       const struct structural_tokens *tokens, sym_id *ret, struct err *e);

#endif
