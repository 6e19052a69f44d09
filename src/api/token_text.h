/* token_text.h - a token as a JSON string. */
#ifndef PLATEAU_API_TOKEN_TEXT_H
#define PLATEAU_API_TOKEN_TEXT_H

#include <stdint.h>

struct buf;
struct tokenizer;

/* Bytes that are not UTF-8 become U+FFFD. Without a tokenizer: the token's number. */
void token_text_write(const struct tokenizer *t, uint32_t id, struct buf *ret);

#endif
