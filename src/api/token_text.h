/* token_text.h - a token as text. */
#ifndef PLATEAU_API_TOKEN_TEXT_H
#define PLATEAU_API_TOKEN_TEXT_H

#include "base/slice.h"

#include <stdint.h>

struct tokenizer;

#define TOKEN_TEXT_BYTES 1024

/* Returns the token's text, if need be in `room`: bytes that are not UTF-8 become U+FFFD. Without a tokenizer
 * it is the token's number. */
struct slice token_text(const struct tokenizer *t, uint32_t id, char room[TOKEN_TEXT_BYTES]);

#endif
