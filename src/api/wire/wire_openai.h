/* wire_openai.h - what OpenAI's dialects share: the frame of replies and chunks, ids, logprobs, usage. For
 * wire_*.c. */
#ifndef PLATEAU_API_WIRE_OPENAI_H
#define PLATEAU_API_WIRE_OPENAI_H

#include "api/wire/wire.h"

#include "base/json/json_out.h"

struct prompt_ids;

#define OPENAI "openai" /* request_form.api */

/* Writes a reply that is not streamed, up to its last brace: head, choices, usage. */
typedef void openai_choice_fn(const struct reply *r, struct json_out *j);
struct json_out openai_whole(const struct exchange *x, openai_choice_fn *write_choice, struct buf *ret);
/* Begins a chunk in x->out, up to its open choice, which has its index. A chunk is one line, because JSON
 * escapes line breaks. */
struct json_out openai_chunk_begin(const struct reply *r);
/* Closes the choice and the chunk; with the prompt's ids where the client requested them and this chunk
 * carries them. */
void openai_chunk_end(struct exchange *x, bool with_prompt_ids, struct json_out *j);
/* Writes the chunk with the finish reason; `empty` is the value of the member without output. */
void openai_finish(struct reply *r, const char *member, struct slice empty);

/* Puts finish_reason and stop_reason: the latter the stop string or token that ended the choice, or null. */
void openai_write_finish(const struct reply *r, struct json_out *j);
/* Puts prompt_logprobs, null where the client requested none. */
void openai_write_prompt_logprobs(const struct reply *r, struct json_out *j);
/* Puts token_ids where the client requested them. */
void openai_write_ids(const struct reply *r, struct json_out *j);
/* Puts prompt_token_ids. */
void openai_write_prompt_ids(const struct prompt_ids *p, struct json_out *j);

/* Notes the ids and the prompt's logprobs, where the client requested them. */
void openai_note_token(struct reply *r, const struct reply_part *p);
/* Puts a logprob: NAN and infinities are -9999, as in other servers. */
void openai_write_logprob(struct json_out *j, const char *key, float logprob);
/* openai_logprobs.c: one more of the entries {"token","logprob","bytes","top_logprobs"} in `ret`. */
void openai_note_logprob(const struct reply *r, const struct stream_token *token, struct buf *ret);

#endif
