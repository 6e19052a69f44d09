/* reply_chunk.h - the frame of every chunk of a stream, and the parts that chats and completions share. For
 * reply_*.c. */
#ifndef PLATEAU_API_REPLY_CHUNK_H
#define PLATEAU_API_REPLY_CHUNK_H

#include "api/choice.h"
#include "api/exchange.h"

/* `"id":...,"object":...,"created":...,"model":...` of whole replies and of chunks. */
void reply_write_head(const struct exchange *x, bool chunk, struct buf *ret);
/* A reply that is not streamed, up to its last brace: head, choices, usage. */
typedef void reply_choice_fn(const struct choice *c, struct buf *ret);
void reply_write_whole(const struct exchange *x, reply_choice_fn *write_choice, struct buf *ret);
/* `data: {...,"choices":[` into x->out, and its end `],...}`; with the prompt's ids where the client
 * requested them and this chunk carries them. A chunk is one line: JSON escapes line breaks. */
void reply_chunk_begin(struct exchange *x);
void reply_chunk_end(struct exchange *x, bool with_prompt_ids);
/* `"name":[...]` of items that are written already. */
void reply_write_list(const char *name, const struct buf *items, struct buf *ret);
/* `,"token_ids":[...]` where the client requested them. */
void reply_write_ids(const struct choice *c, struct buf *ret);
/* `,"prompt_token_ids":[...]` */
void reply_write_prompt_ids(const struct prompt_ids *p, struct buf *ret);

#endif
