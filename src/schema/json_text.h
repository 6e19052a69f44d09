/* json_text.h - how JSON is written, as expressions and rules.
 *
 * Strings: every character may stand as itself, as a short escape, or as \uXXXX in either case, above U+FFFF
 * as a pair of surrogates. Lone surrogates are not characters. White space: after { [ , : and before } ] one
 * space, or a line end and at most 80 spaces or 20 tabs; before : one space. None around the whole.
 * json_text_space() sets others. */
#ifndef PLATEAU_SCHEMA_JSON_TEXT_H
#define PLATEAU_SCHEMA_JSON_TEXT_H

#include "grammar/grammar.h"

struct json_text {
    struct grammar_builder *b;
    struct rx_store *s;
    rx_id character, text; /* one character of a string; any number of them */
    rx_id space;           /* white space or nothing */
    rx_id comma, colon;    /* with the white space around them */
    rx_id number;          /* every number, with exponents */
    rx_id ascii[128];      /* spellings of one character; 0: not made yet */
    sym_id any, object;    /* rules; UINT32_MAX: not made yet */
    bool raw;              /* strings are written raw, without quotes or escapes */
    bool plain;            /* no escape of what can stand as itself in ASCII, no endless digits */
};

#define JSON_DIGITS_MAX   20 /* digits of plain numbers, before the point and after it */
#define JSON_EXPONENT_MAX 3  /* digits of it */

void json_text_init(struct json_text *t, struct grammar_builder *b);
/* Plain: for texts that a model writes. One that is unsure would go on with digits, or escape each letter. */
void json_text_init_plain(struct json_text *t, struct grammar_builder *b);
/* Strings stand as raw text, each of the texts `within`. For values that are strings: keys and other values
 * are written as JSON. */
void json_text_init_raw(struct json_text *t, struct grammar_builder *b, rx_id within);

/* How values are set apart; none of the two separators matches the empty text. */
struct json_spacing {
    rx_id space, comma, colon;
};
void json_text_space(struct json_text *t, const struct json_spacing *spacing);

/* Any character of the ranges in each of its spellings: an rx_encode_fn; `arg` is a json_text. */
rx_id json_text_encode(void *arg, struct rx_store *s, const struct rx_range *ranges, uint32_t count);
/* The characters of valid UTF-8, between the quotes. */
rx_id json_text_content(struct json_text *t, struct slice utf8);
rx_id json_text_quoted(struct json_text *t, rx_id content);
/* A sorted list of different strings as one expression of their contents that shares prefixes. */
rx_id json_text_one_of(struct json_text *t, const struct slice *sorted, uint32_t count);

rx_id json_text_name(struct json_text *t, rx_id content); /* a quoted key of `content`, and the colon */
/* head { or ,: with white space, a quoted key of `content`, and the colon. */
rx_id json_text_key(struct json_text *t, char head, rx_id content);
rx_id json_text_open(struct json_text *t, char bracket);  /* [ or { or , and white space */
rx_id json_text_close(struct json_text *t, char bracket); /* white space and ] or } */

sym_id json_text_any(struct json_text *t);    /* any value */
sym_id json_text_object(struct json_text *t); /* any object */

/* Whether `content` matches the string, and the string's spelling that escapes least. */
bool json_text_matches(struct json_text *t, rx_id content, struct slice utf8);

#endif
