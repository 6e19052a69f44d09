/* openai_logprobs.c - logprobs of tokens as chats and Responses have them. */
#include "api/exchange.h"
#include "api/reply.h"
#include "api/token_text.h"
#include "api/wire/wire_openai.h"

#include "base/check.h"
#include "base/json/json_out.h"
#include "tokenizer/tokenizer.h"

static void write_bytes(const struct tokenizer *t, uint32_t id, struct json_out *j)
{
    struct slice bytes = t ? tokenizer_token_bytes(t, id) : (struct slice){0};
    json_open_array(j, "bytes");
    for (size_t i = 0; i < bytes.len; i++)
        json_put_u64(j, NULL, (unsigned char)bytes.ptr[i]);
    json_close(j);
}

static void open_alternative(const struct tokenizer *t, uint32_t id, float logprob, struct json_out *j)
{
    char room[TOKEN_TEXT_BYTES];
    json_open(j, NULL);
    json_put_text(j, "token", token_text(t, id, room));
    openai_write_logprob(j, "logprob", logprob);
    write_bytes(t, id, j);
}

void openai_note_logprob(const struct reply *r, const struct stream_token *token, struct buf *ret)
{
    const struct tokenizer *t = r->exchange->gen.model->tokenizer;
    uint32_t top_max = (uint32_t)r->exchange->request.gen.sampling.top_logprobs;
    struct json_out j = json_out_items(ret);
    open_alternative(t, token->id, token->logprob, &j);
    json_open_array(&j, "top_logprobs");
    for (uint32_t i = 0; i < MIN_OF(token->top_count, top_max); i++) {
        open_alternative(t, token->top[i].id, token->top[i].logprob, &j);
        json_close(&j);
    }
    json_close(&j);
    json_end(&j);
}
