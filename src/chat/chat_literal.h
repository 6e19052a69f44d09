/* chat_literal.h - arguments written as literals of another notation, turned into a JSON object as they
 * arrive.
 *
 *     CHAT_LITERAL_PYTHON   key="text", n=3, l=[1, None], d={'k': True})    after the (
 *     CHAT_LITERAL_BRACED   key:<|"|>text<|"|>,n:3,o:{k:[true]}}            after the {
 *
 * Text is handed on when chat_literal_close() can complete it: strings in pieces, numbers and words when
 * they are complete. A word that is neither a number nor a constant becomes a string. */
#ifndef PLATEAU_CHAT_CHAT_LITERAL_H
#define PLATEAU_CHAT_CHAT_LITERAL_H

#include "base/buf.h"

#define CHAT_LITERAL_DEPTH_MAX 64

enum chat_notation { CHAT_LITERAL_PYTHON, CHAT_LITERAL_BRACED };

struct chat_literal {
    enum chat_notation notation;
    struct slice quote; /* around strings of CHAT_LITERAL_BRACED; borrowed */
    uint8_t state;
    bool key;  /* the string is a key */
    bool done; /* the closing bracket was read */
    bool broken;
    char string[3]; /* one or three quotation marks, which end the string */
    uint8_t string_len;
    uint32_t depth, count[CHAT_LITERAL_DEPTH_MAX];
    char kind[CHAT_LITERAL_DEPTH_MAX];
    struct buf held, word;
};

void chat_literal_init(struct chat_literal *l, enum chat_notation notation, struct slice quote,
                       size_t bytes_max, const struct charge *charge);
void chat_literal_done(struct chat_literal *l);
/* Before the members of an object; its { has been handed on already. */
void chat_literal_restart(struct chat_literal *l);
/* Reads on and returns how many bytes were read: fewer than all when the value ends (l->done), when it is
 * not of this notation (l->broken), or when the rest says too little yet. Appends JSON to `ret`. */
size_t chat_literal_feed(struct chat_literal *l, struct slice text, struct buf *ret);
/* The input is over. Appends what completes the object. */
void chat_literal_close(struct chat_literal *l, struct buf *ret);

#endif
