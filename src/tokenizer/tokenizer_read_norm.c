/* tokenizer_read_norm.c - the normalizer's and the decoder's members as stages. */
#include "tokenizer/charsmap.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/split_regex.h"
#include "tokenizer/token_decoder.h"
#include "tokenizer/tokenizer_read.h"
#include "tokenizer/tokenizer_state.h"

#include "base/arena.h"
#include "base/check.h"
#include "base/err.h"
#include "unicode/unicode_normal.h"

#include <errno.h>

struct reading {
    struct tokenizer *t;
    struct arena *a;
    struct err *e;
    const char *part; /* the file's part that is read now */
    bool fused;       /* after the decoder's Fuse */
};

static int refuse(const struct reading *in, const json_t *member, const char *what)
{
    return err_set(in->e, -EINVAL, "tokenizer.json: %s \"%.*s\": %s", in->part,
                   SLICE_ARGS(tokenizer_stage_type(member)), what);
}

static int keep(const struct reading *in, struct slice s, struct slice *ret)
{
    char *copy = arena_strndup(in->a, s.ptr ? s.ptr : "", s.len);
    if (!copy)
        return tokenizer_no_memory(in->e);
    *ret = (struct slice){copy, s.len};
    return 0;
}

/* ---- normalizer ---- */

static int add(const struct reading *in, const json_t *member, const struct normalizer_stage *s)
{
    struct normalizer *n = &in->t->normalizer;
    if (n->count == NORMALIZER_STAGES_MAX)
        return refuse(in, member, "there are more stages than can be used");
    n->stages[n->count++] = *s;
    return 0;
}

static int read_prepend(struct reading *in, const json_t *member)
{
    struct normalizer_stage s = {.kind = NORMALIZE_PREPEND};
    int r = keep(in, json_slice(json_object_get(member, "prepend")), &s.content);
    return r < 0 ? r : add(in, member, &s);
}

static int read_replace(struct reading *in, const json_t *member)
{
    struct normalizer_stage s = {.kind = NORMALIZE_REPLACE};
    const json_t *pattern = json_object_get(member, "pattern");
    struct slice text = json_slice(json_object_get(pattern, "String"));
    struct slice regex = json_slice(json_object_get(pattern, "Regex"));
    struct split_regex *compiled = NULL;
    int r = keep(in, json_slice(json_object_get(member, "content")), &s.content);
    if (r == 0)
        r = regex.len ? split_regex_compile(in->a, regex, &compiled, in->e)
                      : split_regex_literal(in->a, text, &compiled, in->e);
    if (r < 0)
        return err_prefix(in->e, r, "tokenizer.json: normalizer");
    s.regex = compiled;
    s.keeps_bytes = regex.len == 0 && slice_eq(text, SLICE(" ")) && s.content.len > 0;
    return add(in, member, &s);
}

static int read_strip(struct reading *in, const json_t *member)
{
    const struct normalizer_stage s = {.kind = NORMALIZE_STRIP,
                                       .left = json_is_true(json_object_get(member, "strip_left")),
                                       .right = json_is_true(json_object_get(member, "strip_right"))};
    return add(in, member, &s);
}

static int read_charsmap(struct reading *in, const json_t *member)
{
    struct normalizer_stage s = {.kind = NORMALIZE_CHARSMAP};
    int r =
        charsmap_read(&s.charsmap, in->a, json_slice(json_object_get(member, "precompiled_charsmap")), in->e);
    return r < 0 ? err_prefix(in->e, r, "tokenizer.json: normalizer") : add(in, member, &s);
}

static int read_bert(struct reading *in, const json_t *member)
{
    const json_t *accents = json_object_get(member, "strip_accents");
    bool lower = json_is_true(json_object_get(member, "lowercase"));
    bool strip = accents && !json_is_null(accents) ? json_is_true(accents) : lower;
    const struct {
        bool wanted;
        struct normalizer_stage stage;
    } parts[] = {
        {json_is_true(json_object_get(member, "clean_text")), {.kind = NORMALIZE_BERT_CLEAN}},
        {json_is_true(json_object_get(member, "handle_chinese_chars")), {.kind = NORMALIZE_BERT_CHINESE}},
        {strip, {.kind = NORMALIZE_FORM, .form = UNICODE_NFD}},
        {strip, {.kind = NORMALIZE_BERT_ACCENTS}},
        {lower, {.kind = NORMALIZE_LOWERCASE}}};
    int r = 0;
    for (size_t i = 0; i < COUNT_OF(parts) && r == 0; i++)
        if (parts[i].wanted)
            r = add(in, member, &parts[i].stage);
    return r;
}

static int read_form(struct reading *in, const json_t *member)
{
    static const char *const names[] = {"NFC", "NFD", "NFKC", "NFKD"};
    struct normalizer_stage s = {.kind = NORMALIZE_FORM};
    while (!json_is(json_object_get(member, "type"), names[s.form]))
        s.form++;
    return add(in, member, &s);
}

static int read_lowercase(struct reading *in, const json_t *member)
{
    return add(in, member, &(struct normalizer_stage){.kind = NORMALIZE_LOWERCASE});
}

static int read_strip_accents(struct reading *in, const json_t *member)
{
    return add(in, member, &(struct normalizer_stage){.kind = NORMALIZE_MARKS});
}

static int read_nmt(struct reading *in, const json_t *member)
{
    return add(in, member, &(struct normalizer_stage){.kind = NORMALIZE_NMT});
}

/* ---- decoder ---- */

static int add_decoder(const struct reading *in, const json_t *member, const struct token_decoder_stage *s)
{
    struct token_decoder *d = &in->t->decoder;
    if (d->count == TOKEN_DECODER_STAGES_MAX || in->fused || d->byte_level || d->first != FIRST_SAME)
        return refuse(in, member, "it is not supported behind the stages before it");
    d->stages[d->count++] = *s;
    return 0;
}

static int read_byte_level_decoder(struct reading *in, const json_t *member)
{
    struct token_decoder *d = &in->t->decoder;
    if (d->count || d->byte_level || in->fused)
        return refuse(in, member, "it is not supported behind the stages before it");
    d->byte_level = true;
    return 0;
}

static int read_replace_decoder(struct reading *in, const json_t *member)
{
    struct token_decoder_stage s = {.kind = DECODE_REPLACE};
    int r = keep(in, json_slice(json_object_get(json_object_get(member, "pattern"), "String")), &s.from);
    if (r == 0)
        r = keep(in, json_slice(json_object_get(member, "content")), &s.to);
    if (r == 0 && s.from.len == 0)
        return refuse(in, member, "only a pattern that is a String can be used");
    return r < 0 ? r : add_decoder(in, member, &s);
}

static int read_metaspace_decoder(struct reading *in, const json_t *member)
{
    struct token_decoder_stage s = {.kind = DECODE_REPLACE, .to = SLICE(" ")};
    const json_t *scheme = json_object_get(member, "prepend_scheme");
    bool never =
        json_is(scheme, "never") || (!scheme && json_is_false(json_object_get(member, "add_prefix_space")));
    int r = keep(in, json_slice(json_object_get(member, "replacement")), &s.from);
    if (r == 0 && s.from.len == 0)
        return refuse(in, member, "it has no replacement");
    if (r == 0 && !never && in->t->decoder.count)
        return refuse(in, member, "it is not supported behind the stages before it");
    if (r == 0)
        r = add_decoder(in, member, &s);
    if (r == 0 && !never) {
        in->t->decoder.first = FIRST_DROPS;
        in->t->decoder.mark = s.from;
    }
    return r;
}

static int read_byte_fallback_decoder(struct reading *in, const json_t *member)
{
    return add_decoder(in, member, &(struct token_decoder_stage){.kind = DECODE_BYTE_FALLBACK});
}

static int read_fuse(struct reading *in, const json_t *member)
{
    (void)member;
    in->fused = true;
    return 0;
}

static int read_strip_decoder(struct reading *in, const json_t *member)
{
    struct slice content = json_slice(json_object_get(member, "content"));
    json_int_t start = json_integer_value(json_object_get(member, "start"));
    if (!in->fused || content.len != 1 || start < 0 || start > UINT8_MAX || in->t->decoder.strip_max ||
        !json_is_off(json_object_get(member, "stop")))
        return refuse(in, member, "only one behind Fuse, of one ASCII character at the start, can be used");
    in->t->decoder.strip = content.ptr[0];
    in->t->decoder.strip_max = (uint32_t)start;
    return 0;
}

static int read_wordpiece_decoder(struct reading *in, const json_t *member)
{
    struct token_decoder_stage s = {.kind = DECODE_WORDPIECE,
                                    .cleanup = json_is_true(json_object_get(member, "cleanup"))};
    int r = keep(in, json_slice(json_object_get(member, "prefix")), &s.from);
    if (r == 0 && in->t->decoder.count)
        return refuse(in, member, "it is not supported behind the stages before it");
    if (r == 0)
        r = add_decoder(in, member, &s);
    in->t->decoder.first = FIRST_AS_WRITTEN;
    return r;
}

/* ---- tables ---- */

struct member_reader {
    const char *type;
    int (*read)(struct reading *in, const json_t *member);
};

static const struct member_reader normalizers[] = {{"NFC", read_form},
                                                   {"NFD", read_form},
                                                   {"NFKC", read_form},
                                                   {"NFKD", read_form},
                                                   {"Nmt", read_nmt},
                                                   {"Lowercase", read_lowercase},
                                                   {"StripAccents", read_strip_accents},
                                                   {"Strip", read_strip},
                                                   {"Replace", read_replace},
                                                   {"Prepend", read_prepend},
                                                   {"Precompiled", read_charsmap},
                                                   {"BertNormalizer", read_bert}};
static const struct member_reader decoders[] = {{"ByteLevel", read_byte_level_decoder},
                                                {"Replace", read_replace_decoder},
                                                {"Metaspace", read_metaspace_decoder},
                                                {"ByteFallback", read_byte_fallback_decoder},
                                                {"Fuse", read_fuse},
                                                {"Strip", read_strip_decoder},
                                                {"WordPiece", read_wordpiece_decoder}};

static int read_member(struct reading *in, const json_t *member, const struct member_reader *readers,
                       size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (json_is(json_object_get(member, "type"), readers[i].type))
            return readers[i].read(in, member);
    return refuse(in, member, "it is not supported");
}

/* Sequences within a Sequence are read in their place. */
static int read_list(struct reading *in, const json_t *list, const char *key, uint32_t depth)
{
    bool norm = slice_eq(slice_of(key), SLICE("normalizers"));
    int r = 0;
    if (depth > 4)
        return refuse(in, list, "its Sequences are nested too deep");
    for (size_t i = 0; i < tokenizer_stage_count(list, key) && r == 0; i++) {
        const json_t *member = tokenizer_stage_member(list, key, i);
        if (json_is(json_object_get(member, "type"), "Sequence"))
            r = read_list(in, member, key, depth + 1);
        else
            r = norm ? read_member(in, member, normalizers, COUNT_OF(normalizers))
                     : read_member(in, member, decoders, COUNT_OF(decoders));
    }
    return r;
}

int tokenizer_read_normalizer(struct tokenizer *t, struct arena *a, const json_t *normalizer, struct err *e)
{
    struct reading in = {.t = t, .a = a, .e = e, .part = "normalizer"};
    return read_list(&in, normalizer, "normalizers", 0);
}

int tokenizer_read_decoder(struct tokenizer *t, struct arena *a, const json_t *decoder, struct err *e)
{
    struct reading in = {.t = t, .a = a, .e = e, .part = "decoder"};
    if (!decoder || json_is_null(decoder)) {
        /* The reference puts a space between the tokens. */
        t->decoder.stages[t->decoder.count++] = (struct token_decoder_stage){.kind = DECODE_SPACE};
        t->decoder.first = FIRST_AS_WRITTEN;
        return 0;
    }
    return read_list(&in, decoder, "decoders", 0);
}
