/* reply.h - JSON of replies, whole and in pieces. Nothing here decides: it writes what exchange and choices
 * hold. */
#ifndef PLATEAU_API_REPLY_H
#define PLATEAU_API_REPLY_H

#include "api/choice.h"
#include "api/exchange.h"

/* The whole reply of an exchange whose choices are all over. */
void reply_write_chat(struct exchange *x, struct buf *ret);
void reply_write_completion(struct exchange *x, struct buf *ret);

/* Streams. The chunk for what a choice has collected, if anything, as SSE into x->out; the collected is
 * forgotten. */
void reply_flush_chat(struct choice *c);
void reply_flush_completion(struct choice *c);
/* A chat's first chunks, with the role of each choice; once, and by itself before any other chunk. */
void reply_begin_chat(struct exchange *x);
/* The one chunk of a choice with its finish_reason. */
void reply_finish(struct choice *c);
/* The chunk with the usage of all choices, and [DONE]. */
void reply_usage(struct exchange *x);
void reply_done(struct exchange *x);
/* An error inside of a stream. */
void reply_error(struct exchange *x, const struct reject *why);

/* `"usage":{...}` of everything so far. */
void reply_write_usage(const struct exchange *x, struct buf *ret);

/* A logprob: the fewest digits that read back as the same float. NAN and infinities become -9999, as
 * elsewhere. */
void reply_write_logprob(struct buf *ret, float logprob);
/* {"token","logprob","bytes","top_logprobs"} as chats have them. */
void reply_write_chat_logprob(const struct tokenizer *t, const struct stream_token *token, uint32_t top_max,
                              struct buf *ret);
/* A token as a JSON string; bytes that are not UTF-8 become U+FFFD. Without a tokenizer: its number. */
void reply_write_token(const struct tokenizer *t, uint32_t id, struct buf *ret);

#endif
