/* reply.h - JSON of replies, whole and in pieces. Decides nothing: it writes the state of exchange and
 * choices. */
#ifndef PLATEAU_API_REPLY_H
#define PLATEAU_API_REPLY_H

#include "api/choice.h"
#include "api/exchange.h"

/* The whole reply of an exchange; all its choices are over. */
void reply_write_chat(struct exchange *x, struct buf *ret);
void reply_write_completion(struct exchange *x, struct buf *ret);

/* Streams. Appends the collected output of a choice, if any, to x->out as one SSE chunk, and clears it. */
void reply_flush_chat(struct choice *c);
void reply_flush_completion(struct choice *c);
/* Starts a chat stream: one chunk per choice with its role. Once, before any other chunk. */
void reply_begin_chat(struct exchange *x);
/* The single chunk of a choice that has its finish_reason. */
void reply_finish(struct choice *c);
/* The chunk with the usage of all choices, and [DONE]. */
void reply_usage(struct exchange *x);
void reply_done(struct exchange *x);
/* An error inside a stream. */
void reply_error(struct exchange *x, const struct reject *why);

/* `"usage":{...}` of all tokens until now. */
void reply_write_usage(const struct exchange *x, struct buf *ret);

/* A logprob: the fewest digits that parse to the same float. NAN and infinities become -9999, as in other
 * servers. */
void reply_write_logprob(struct buf *ret, float logprob);
/* {"token","logprob","bytes","top_logprobs"} as chats have them. */
void reply_write_chat_logprob(const struct tokenizer *t, const struct stream_token *token, uint32_t top_max,
                              struct buf *ret);
/* A token as a JSON string; bytes that are not UTF-8 become U+FFFD. Without a tokenizer: its number. */
void reply_write_token(const struct tokenizer *t, uint32_t id, struct buf *ret);

#endif
