/* rx_parse.h - a pattern as text (ECMA 262's syntax with its u flag, as JSON Schema and vLLM's `regex` use
 * it) to a regular expression.
 *
 * Supported: literals, classes with \d \w \s and \p of general categories, groups (capturing, named,
 * (?:...), (?s:...)), alternation, * + ? {m,n} and their lazy forms (same language), ^ and $ at the ends of
 * alternatives, and escapes. With `search` an alternative outside of groups may have look-ahead right after
 * its ^. Other look-around, back references and \b are refused by name. */
#ifndef PLATEAU_RX_RX_PARSE_H
#define PLATEAU_RX_RX_PARSE_H

#include "rx/rx.h"

struct err;

#define RX_PATTERN_BYTES_MAX ((size_t)64 << 10)
#define RX_GROUP_REPEAT_MAX  1000 /* repeats of a group; a single character has RX_CHAR_REPEAT_MAX */
#define RX_CHAR_REPEAT_MAX   1000000

/* How one character of a class stands in the text. NULL fields of rx_parse_opts: as UTF-8. */
typedef rx_id rx_encode_fn(void *arg, struct rx_store *s, const struct rx_range *ranges, uint32_t count);

struct rx_parse_opts {
    bool search;          /* without ^ and $ the pattern may stand anywhere in the text (JSON Schema) */
    rx_encode_fn *encode; /* for instance within a JSON string, where a character may be escaped */
    void *encode_arg;
};

/* 0; -EINVAL (no pattern, or not supported: `e` says what and where); -E2BIG (a limit); -ENOMEM;
 * -ETIME or -ECANCELED (`wanted` ended the work). */
int rx_parse(struct rx_store *s, struct slice pattern, const struct rx_parse_opts *opts, rx_id *ret,
             struct err *e);

#endif
