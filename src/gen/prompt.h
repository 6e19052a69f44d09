/* prompt.h - from messages, text or ids to the token ids of a prompt. On prep threads. */
#ifndef PLATEAU_GEN_PROMPT_H
#define PLATEAU_GEN_PROMPT_H

#include <stdbool.h>
#include <stdint.h>

struct arena;
struct buf;
struct chat_cuts;
struct gen;
struct prompt_ids;
struct slice;

/* Renders the template over the request's messages into `ret`; `cuts` (NULL: none) are byte offsets in
 * it. Rendering stops when the text certainly has more than ids_max tokens: 400 context_length_exceeded.
 * False: g->reject has the error. */
bool prompt_render(struct gen *g, struct arena *scratch, uint32_t ids_max, struct buf *ret,
                   struct chat_cuts *cuts);

/* Text to ids: a block charged to g->memory, for request_memory_free(ids, count * 4). At most ids_max ids,
 * else 400 context_length_exceeded, without tokenizing where the bytes prove it. `special`: add the tokens
 * that the tokenizer puts around a text (bos). `cuts` of the text (NULL: none) become cuts in `ret`. */
bool prompt_encode(struct gen *g, struct arena *scratch, struct slice text, const struct chat_cuts *cuts,
                   bool special, uint32_t ids_max, struct prompt_ids *ret);

/* As `prompt_encode()`, but of a text whose special tokens are plain characters. */
bool prompt_encode_plain(struct gen *g, struct arena *scratch, struct slice text, uint32_t ids_max,
                         struct prompt_ids *ret);

/* From the request's messages: rendered, images placed, and encoded. */
bool prompt_of_messages(struct gen *g, struct arena *scratch, uint32_t ids_max, bool cut,
                        struct prompt_ids *ret);

/* Fills g->prompts and g->prompt_count from the request: messages, or one or several prompts. */
bool prompt_make(struct gen *g, struct arena *scratch);

/* Refuses prompts with a token that the tokenizer has and the model does not: an id beyond its embedding. */
bool prompt_check_ids(struct gen *g);

#endif
