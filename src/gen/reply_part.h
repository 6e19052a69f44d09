/* reply_part.h - a part of a reply, as a choice (choice.h) hands it to a sink: it is valid during the
 * call. */
#ifndef PLATEAU_GEN_REPLY_PART_H
#define PLATEAU_GEN_REPLY_PART_H

#include "base/slice.h"

#include <stdint.h>

struct stream_token;

enum reply_part_kind {
    PART_TOKEN,        /* a token of the output; the parts of its text follow it */
    PART_PROMPT_TOKEN, /* a token of the prompt with its logprobs, before all others */
    PART_REASONING,
    PART_TEXT,
    PART_CALL, /* a call begins: `text` is the function's name */
    PART_ARGUMENTS,
    PART_CALL_END
};

struct reply_part {
    enum reply_part_kind kind;
    const struct stream_token *token;
    struct slice text;
    uint32_t call_index; /* index of the call that the part is of */
    struct slice id;     /* PART_CALL: the id that the model gave it; empty: none */
};

typedef void reply_part_fn(void *arg, const struct reply_part *p);

#endif
