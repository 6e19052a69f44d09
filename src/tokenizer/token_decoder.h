/* token_decoder.h - the decoder of a tokenizer.json: from a token as the vocabulary writes it to its bytes.
 *
 * What a token becomes depends on nothing but whether it is the first one, so the bytes of every token are
 * computed at load. Filled while the file is read, then read from any thread. */
#ifndef PLATEAU_TOKENIZER_TOKEN_DECODER_H
#define PLATEAU_TOKENIZER_TOKEN_DECODER_H

#include "base/buf.h"

#define TOKEN_DECODER_STAGES_MAX 8

struct token_decoder_stage {
    enum {
        DECODE_REPLACE,       /* `from` becomes `to` */
        DECODE_BYTE_FALLBACK, /* "<0x0A>" becomes that byte */
        DECODE_SPACE,         /* a space before the token */
        DECODE_WORDPIECE      /* a space before a token that does not start with `from`, which is dropped */
    } kind;
    struct slice from, to;
    bool cleanup; /* DECODE_WORDPIECE: no space before punctuation and in contractions */
};

struct token_decoder {
    struct token_decoder_stage stages[TOKEN_DECODER_STAGES_MAX];
    uint32_t count;
    bool byte_level; /* the vocabulary is written in the byte-level alphabet; no stages */
    /* The first token. */
    enum {
        FIRST_SAME,
        FIRST_AS_WRITTEN, /* it is the token as the vocabulary writes it */
        FIRST_DROPS       /* it is the vocabulary's token without any `mark` */
    } first;
    struct slice mark;
    uint32_t strip_max; /* so many of `strip` at the start of the text are dropped */
    char strip;
};

/* Appends the bytes of a token that is not the first one. Errors stay in `out`. */
void token_decoder_run(const struct token_decoder *d, struct slice token, struct buf *out);

#endif
