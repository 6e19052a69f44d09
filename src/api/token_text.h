/* token_text.h - tokens in replies, as numbers and as text. */
#ifndef PLATEAU_API_TOKEN_TEXT_H
#define PLATEAU_API_TOKEN_TEXT_H

#include "base/slice.h"

#include <stdbool.h>
#include <stdint.h>

struct exchange;
struct json_out;
struct prompt_ids;
struct tokenizer;

#define TOKEN_TEXT_BYTES 1024

/* Returns the token's text, if need be in `room`: bytes that are not UTF-8 become U+FFFD. Without a tokenizer
 * it is the token's number. */
struct slice token_text(const struct tokenizer *t, uint32_t id, char room[TOKEN_TEXT_BYTES]);

/* Writes the prompt's token ids as the list `key`. False: the exchange was cancelled. */
bool token_text_put_ids(struct exchange *x, const struct prompt_ids *p, const char *key, struct json_out *j);

#endif
