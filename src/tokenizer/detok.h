/* detok.h - tokens to text while they are sampled.
 *
 * A token's bytes may end inside a character. The end of it (at most three bytes) is held back until a later
 * token completes or breaks it, so the text after every push is valid UTF-8. All pushes and the flush
 * together equal decoding the whole list at once. Owns nothing; one thread at a time. */
#ifndef PLATEAU_TOKENIZER_DETOK_H
#define PLATEAU_TOKENIZER_DETOK_H

#include <stdbool.h>
#include <stdint.h>

struct buf;
struct tokenizer;

struct detok {
    const struct tokenizer *tokenizer;
    bool skip_special;
    bool started;   /* some token has been pushed */
    uint32_t strip; /* characters that may still be dropped at the start */
    uint8_t held;   /* bytes in `tail`: the start of one character */
    char tail[3];
};

/* `t` outlives `d`. */
void detok_init(struct detok *d, const struct tokenizer *t, bool skip_special);
/* The text continues another one: its first token keeps its space. After detok_init, before any token. */
void detok_continue(struct detok *d);
/* Appends the text that `id` completes: often its own, sometimes nothing. Ignores an id that is not a token.
 * Errors stay in `out`. */
void detok_push(struct detok *d, uint32_t id, struct buf *out);
/* The end: held bytes become U+FFFD. The state is as after detok_init. */
void detok_flush(struct detok *d, struct buf *out);

#endif
