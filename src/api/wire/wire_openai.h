/* wire_openai.h - what OpenAI's dialects share: the frame of replies and chunks, ids, logprobs, usage. For
 * wire_*.c. */
#ifndef PLATEAU_API_WIRE_OPENAI_H
#define PLATEAU_API_WIRE_OPENAI_H

#include "api/wire/wire.h"

struct prompt_ids;

#define OPENAI "openai" /* request_form.api */

/* A reply that is not streamed, up to its last brace: head, choices, usage. */
typedef void openai_choice_fn(const struct reply *r, struct buf *ret);
void openai_whole(const struct exchange *x, openai_choice_fn *write_choice, struct buf *ret);
/* `data: {...,"choices":[` into x->out, and its end `],...}`; with the prompt's ids where the client
 * requested them and this chunk carries them. A chunk is one line: JSON escapes line breaks. */
void openai_chunk_begin(struct exchange *x);
void openai_chunk_end(struct exchange *x, bool with_prompt_ids);
/* The chunk with the finish reason; `empty` is the member without output: "\"text\":\"\"". */
void openai_finish(struct reply *r, const char *empty);

/* `,"finish_reason":"stop","stop_reason":...`: the latter the stop string or token that ended it, or null. */
void openai_write_finish(const struct reply *r, struct buf *ret);
/* `"name":[...]` of items that are written already. */
void openai_write_list(const char *name, const struct buf *items, struct buf *ret);
/* `,"prompt_logprobs":[...]`, or null where the client requested none. */
void openai_write_prompt_logprobs(const struct reply *r, struct buf *ret);
/* `,"token_ids":[...]` where the client requested them. */
void openai_write_ids(const struct reply *r, struct buf *ret);
/* `,"prompt_token_ids":[...]` */
void openai_write_prompt_ids(const struct prompt_ids *p, struct buf *ret);

/* Notes the ids and the prompt's logprobs, where the client requested them. */
void openai_note_token(struct reply *r, const struct part *p);
/* A comma between items. */
void openai_comma(struct buf *b);
/* The fewest digits that parse to the same float. It is finite. */
void openai_write_float(struct buf *ret, float x);
/* As `openai_write_float()`, but NAN and infinities become -9999, as in other servers. */
void openai_write_logprob(struct buf *ret, float logprob);
/* openai_logprobs.c: one more of the entries {"token","logprob","bytes","top_logprobs"} in `ret`. */
void openai_note_logprob(const struct reply *r, const struct stream_token *token, struct buf *ret);

#endif
