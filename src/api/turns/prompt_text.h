/* prompt_text.h - marks in the text of a part of a prompt, by which a later turn finds the first character
 * that differs.
 *
 * The text of a part is all strings, numbers and names of its JSON, in order. A mark is 16 bits of a hash of
 * the text before it; marks are `stride` bytes apart. So a difference is found to within a stride. Pure; any
 * thread; allocates nothing. */
#ifndef PLATEAU_API_PROMPT_TEXT_H
#define PLATEAU_API_PROMPT_TEXT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PROMPT_AT_BYTES     48 /* path inside a part: "content", "function.parameters"; cut if longer */
#define PROMPT_STRIDE_LEAST 16

/* Where a text begins to differ. */
struct prompt_difference {
    char at[PROMPT_AT_BYTES];   /* the member of the part; empty: its begin */
    uint32_t character, within; /* characters of that member that are the same; the next ones up to `within`
                                 * have the difference */
};

/* A walk over the JSON values of one part, in order. */
struct prompt_text {
    uint32_t stride;
    /* Marks that are collected: `count` of at most `most`. NULL: none. */
    uint16_t *marks;
    uint32_t count, most;
    /* Marks of another text with the same stride, to compare with. NULL: none. */
    const uint16_t *known;
    uint32_t known_count, same; /* same: marks at the begin that are equal */
    bool differs;
    struct prompt_difference difference; /* at the last of these */
    /* The state of the walk. */
    uint64_t hash, bytes;
    uint32_t characters; /* characters of the present member */
    size_t path_bytes;
    char path[PROMPT_AT_BYTES];
};

/* Bytes of the value's text. */
uint64_t prompt_text_bytes(const json_t *value);
/* The walk continues with the value. At first the struct is zero but for stride, marks and most, or stride,
 * known and known_count. */
void prompt_text_add(struct prompt_text *t, const json_t *value);

#endif
