/* token_text.c - a token may end within a character. */
#include "api/token_text.h"

#include "base/json/json_write.h"
#include "tokenizer/tokenizer.h"
#include "unicode/utf8.h"

void token_text_write(const struct tokenizer *t, uint32_t id, struct buf *ret)
{
    char small[256];
    struct slice bytes;
    if (!t) {
        buf_printf(ret, "\"%u\"", id);
        return;
    }
    bytes = tokenizer_token_bytes(t, id);
    if (utf8_valid(bytes)) {
        json_write_string(ret, bytes);
        return;
    }
    /* A token may end within a character. U+FFFD takes three bytes for each byte at most; longer tokens are
     * cut. */
    struct buf text;
    buf_init(&text, sizeof(small) * 4, NULL);
    utf8_put_lossy(&text, slice_sub(bytes, 0, sizeof(small)));
    json_write_string(ret, buf_slice(&text));
    buf_done(&text);
}
