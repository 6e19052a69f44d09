/* token_text.c - a token may end within a character. */
#include "api/token_text.h"

#include "api/exchange.h"

#include "base/buf.h"
#include "base/json/json_out.h"
#include "base/wanted.h"
#include "gen/gen.h"
#include "gen/reject.h"
#include "tokenizer/tokenizer.h"
#include "unicode/utf8.h"

#include <stdio.h>

struct slice token_text(const struct tokenizer *t, uint32_t id, char room[TOKEN_TEXT_BYTES])
{
    if (!t)
        return (struct slice){room, (size_t)snprintf(room, TOKEN_TEXT_BYTES, "%u", id)};
    struct slice bytes = tokenizer_token_bytes(t, id);
    if (utf8_valid(bytes))
        return bytes;
    /* U+FFFD takes three bytes for each byte at most. Longer tokens are cut. */
    struct buf text = {.ptr = room, .capacity = TOKEN_TEXT_BYTES, .bytes_max = TOKEN_TEXT_BYTES - 1};
    utf8_put_lossy(&text, slice_sub(bytes, 0, TOKEN_TEXT_BYTES / 4));
    return buf_slice(&text);
}

bool token_text_put_ids(struct exchange *x, const struct prompt_ids *p, const char *key, struct json_out *j)
{
    size_t look = 0;
    json_open_array(j, key);
    for (uint32_t i = 0; i < p->count; i++) {
        int r = wanted_pass(&x->gen.wanted, i, &look);
        if (r < 0)
            return reject_unwanted(&x->gen.reject, r);
        json_put_u64(j, NULL, p->ids[i]);
    }
    json_close(j);
    return true;
}
