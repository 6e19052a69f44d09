/* token_decoder.c - the stages over one token; two buffers take turns. */
#include "tokenizer/token_decoder.h"

#include "base/check.h"

static void replace(struct slice s, struct slice from, struct slice to, struct buf *out)
{
    ASSERT(from.len > 0); /* else this would not end */
    for (size_t at = 0, found; at < s.len; at = found + from.len) {
        found = slice_find(s, from, at);
        if (found == SIZE_MAX) {
            buf_put_slice(out, slice_sub(s, at, s.len));
            return;
        }
        buf_put_slice(out, slice_sub(s, at, found - at));
        buf_put_slice(out, to);
    }
}

/* "<0x0A>" */
static bool is_byte(struct slice s, char *ret)
{
    if (s.len != 6 || !slice_starts(s, SLICE("<0x")) || s.ptr[5] != '>')
        return false;
    int high = slice_hex(s.ptr[3]), low = slice_hex(s.ptr[4]);
    if (high < 0 || low < 0)
        return false;
    *ret = (char)(high << 4 | low);
    return true;
}

static void wordpiece(const struct token_decoder_stage *stage, struct slice s, struct buf *out)
{
    static const struct {
        struct slice from, to;
    } cleanups[] = {
        {SLICE(" ."), SLICE(".")},     {SLICE(" ?"), SLICE("?")},           {SLICE(" !"), SLICE("!")},
        {SLICE(" ,"), SLICE(",")},     {SLICE(" ' "), SLICE("'")},          {SLICE(" n't"), SLICE("n't")},
        {SLICE(" 'm"), SLICE("'m")},   {SLICE(" do not"), SLICE(" don't")}, {SLICE(" 's"), SLICE("'s")},
        {SLICE(" 've"), SLICE("'ve")}, {SLICE(" 're"), SLICE("'re")}};
    struct buf two[2];
    buf_init(&two[0], SIZE_MAX / 4, NULL);
    buf_init(&two[1], SIZE_MAX / 4, NULL);
    if (stage->from.len && slice_starts(s, stage->from)) {
        buf_put_slice(&two[0], slice_sub(s, stage->from.len, s.len));
    } else {
        buf_putc(&two[0], ' ');
        buf_put_slice(&two[0], s);
    }
    size_t now = 0;
    for (size_t i = 0; stage->cleanup && i < COUNT_OF(cleanups); i++, now ^= 1) {
        buf_clear(&two[now ^ 1]);
        replace(buf_slice(&two[now]), cleanups[i].from, cleanups[i].to, &two[now ^ 1]);
    }
    buf_put_slice(out, buf_slice(&two[now]));
    if (two[0].error || two[1].error)
        out->error = two[0].error ? two[0].error : two[1].error;
    buf_done(&two[0]);
    buf_done(&two[1]);
}

static void run_stage(const struct token_decoder_stage *stage, struct slice s, struct buf *out)
{
    char byte;
    switch (stage->kind) {
    case DECODE_REPLACE:
        replace(s, stage->from, stage->to, out);
        return;
    case DECODE_BYTE_FALLBACK:
        buf_put_slice(out, is_byte(s, &byte) ? (struct slice){&byte, 1} : s);
        return;
    case DECODE_SPACE:
        buf_putc(out, ' ');
        buf_put_slice(out, s);
        return;
    case DECODE_WORDPIECE:
        wordpiece(stage, s, out);
        return;
    }
}

void token_decoder_run(const struct token_decoder *d, struct slice token, struct buf *out)
{
    ASSERT(d->count <= TOKEN_DECODER_STAGES_MAX);
    struct buf two[2];
    size_t now = 0;
    buf_init(&two[0], SIZE_MAX / 4, NULL);
    buf_init(&two[1], SIZE_MAX / 4, NULL);
    buf_put_slice(&two[0], token);
    for (uint32_t i = 0; i < d->count; i++, now ^= 1) {
        buf_clear(&two[now ^ 1]);
        run_stage(&d->stages[i], buf_slice(&two[now]), &two[now ^ 1]);
    }
    buf_put_slice(out, buf_slice(&two[now]));
    if (two[0].error || two[1].error)
        out->error = two[0].error ? two[0].error : two[1].error;
    buf_done(&two[0]);
    buf_done(&two[1]);
}
