/* tokenizer.c - the pipeline: added tokens, normaliser, pre-tokenizer, merges.
 *
 * Text is split at the added tokens of the raw text. The parts between are normalised, split again at the
 * added tokens of the normalised text, and split into pieces; each piece becomes tokens. The reference
 * normalises between tokens rather than before matching, and it matters: a combining mark after "<|im_end|>"
 * must not join it. */
#include "tokenizer/tokenizer.h"

#include "tokenizer/piece_ids.h"
#include "tokenizer/split_regex.h"
#include "tokenizer/tokenizer_state.h"

#include "base/check.h"
#include "base/files/regular_file.h"
#include "unicode/utf8.h"
#include "weights/model_files.h"
#include "weights/model_json.h"

#include <errno.h>

/* ---- loading ---- */

/* A JSON text that comes from memory or from a file. */
struct json_source {
    struct slice text;               /* from memory */
    const struct regular_file *file; /* NULL: from memory */
    size_t bytes, at;                /* size of the text or the file; bytes consumed */
    struct err *e;
    int error;
};

static size_t json_source_read(void *into, size_t len, void *arg)
{
    struct json_source *s = arg;
    ASSERT(s->at <= s->bytes);
    size_t n = MIN_OF(len, s->bytes - s->at);
    if (s->file)
        s->error = regular_file_read(s->file, s->at, into, n, s->e);
    else if (n)
        memcpy(into, s->text.ptr + s->at, n);
    s->at += n;
    return s->error ? (size_t)-1 : n;
}

static int json_source_parse(struct json_source *s, const char *name, json_t **ret, struct err *e)
{
    json_error_t where;
    if (s->bytes > TOKENIZER_FILE_BYTES_MAX)
        return err_set(e, -EFBIG, "%s: larger than the limit of %zu bytes", name, TOKENIZER_FILE_BYTES_MAX);
    s->e = e;
    json_t *root = json_load_callback(json_source_read, s, JSON_REJECT_DUPLICATES, &where);
    if (s->error) {
        json_decref(root);
        return err_prefix(e, s->error, "%s", name);
    }
    if (!root && json_error_code(&where) == json_error_out_of_memory)
        return err_set(e, -ENOMEM, "%s: no memory to read it", name);
    if (!root)
        return err_set(e, -EINVAL, "%s: not usable JSON: line %d: %s", name, where.line, where.text);
    *ret = root;
    return 0;
}

static int json_file_parse(struct model_files *files, const char *name, json_t **ret, struct err *e)
{
    struct json_source source = {.at = 0};
    if (model_files_is_view(files))
        return model_json_view(files, name, ret, e);
    int r = model_files_file(files, name, &source.file, e);
    if (r < 0)
        return r;
    source.bytes = (size_t)source.file->bytes;
    return json_source_parse(&source, name, ret, e);
}

static int tokenizer_build(struct arena *a, const struct tokenizer_source *in, struct tokenizer **ret,
                           struct err *e)
{
    size_t mark = arena_mark(a);
    struct tokenizer *t = ARENA_NEW(a, struct tokenizer);
    int r = t ? tokenizer_json_read(t, a, in, e) : err_set(e, -ENOMEM, "no memory for the tokenizer");
    if (r < 0)
        arena_rewind(a, mark);
    else
        *ret = t;
    return r;
}

static int read_files(struct model_files *files, json_t **root, json_t **config, struct err *e)
{
    int r = json_file_parse(files, "tokenizer.json", root, e);
    if (r < 0)
        return r;
    r = json_file_parse(files, "tokenizer_config.json", config, e);
    return r == -ENOENT ? 0 : r;
}

int tokenizer_load(struct arena *a, struct model_files *files, struct tokenizer **ret, struct err *e)
{
    struct tokenizer_source in = {.view = model_files_is_view(files)};
    int r = read_files(files, &in.root, &in.config, e);
    if (r == 0)
        r = tokenizer_build(a, &in, ret, e);
    json_decref(in.root);
    json_decref(in.config);
    return r;
}

int tokenizer_parse(struct arena *a, struct slice tokenizer_json, struct slice tokenizer_config_json,
                    struct tokenizer **ret, struct err *e)
{
    struct tokenizer_source in = {.view = false};
    struct json_source source = {.text = tokenizer_json, .bytes = tokenizer_json.len};
    struct json_source config_source = {.text = tokenizer_config_json, .bytes = tokenizer_config_json.len};
    int r = json_source_parse(&source, "tokenizer.json", &in.root, e);
    if (r == 0 && tokenizer_config_json.len)
        r = json_source_parse(&config_source, "tokenizer_config.json", &in.config, e);
    if (r == 0)
        r = tokenizer_build(a, &in, ret, e);
    json_decref(in.root);
    json_decref(in.config);
    return r;
}

/* ---- queries ---- */

uint32_t tokenizer_vocab_size(const struct tokenizer *t)
{
    return t->vocab.size;
}

struct slice tokenizer_token_bytes(const struct tokenizer *t, uint32_t id)
{
    return vocab_bytes(&t->vocab, id);
}

struct slice tokenizer_token_text(const struct tokenizer *t, uint32_t id)
{
    return vocab_bytes(&t->texts, id);
}

const struct token_decoder *tokenizer_decoder(const struct tokenizer *t)
{
    return &t->decoder;
}

bool tokenizer_is_token(const struct tokenizer *t, uint32_t id)
{
    return vocab_has(&t->vocab, id);
}

bool tokenizer_is_special(const struct tokenizer *t, uint32_t id)
{
    return vocab_has(&t->vocab, id) && t->vocab.entries[id].is_special;
}

bool tokenizer_is_added(const struct tokenizer *t, uint32_t id)
{
    return vocab_has(&t->vocab, id) && t->vocab.entries[id].is_added;
}

bool tokenizer_find(const struct tokenizer *t, struct slice content, uint32_t *ret)
{
    return added_set_find(&t->added_all, content, ret);
}

size_t tokenizer_added_at(const struct tokenizer *t, struct slice text, uint32_t *ret)
{
    const struct added_token *token = added_set_longest(&t->added_all, text);
    if (!token)
        return 0;
    ASSERT(token->content.len <= text.len && vocab_has(&t->vocab, token->id));
    *ret = token->id;
    return token->content.len;
}

struct slice tokenizer_bos(const struct tokenizer *t)
{
    return t->bos;
}

struct slice tokenizer_eos(const struct tokenizer *t)
{
    return t->eos;
}

/* ---- around texts ---- */

const struct tokenizer_pair *tokenizer_pair(const struct tokenizer *t)
{
    return &t->pair;
}

void tokenizer_around(const struct tokenizer *t, uint32_t *before, uint32_t *behind)
{
    ASSERT(t->prefix_count <= COUNT_OF(t->prefix) && t->suffix_count <= COUNT_OF(t->suffix));
    *before = t->prefix_count;
    *behind = t->suffix_count;
}

uint32_t tokenizer_pair_fixed(const struct tokenizer_pair *p)
{
    ASSERT(p->known);
    return p->before.count + p->between.count + p->behind.count;
}

static uint32_t *append_ids(uint32_t *to, const uint32_t *ids, uint32_t count)
{
    if (count > 0)
        memcpy(to, ids, count * sizeof(*ids));
    return to + count;
}

void tokenizer_pair_join(const struct tokenizer_pair *p, const uint32_t *a, uint32_t a_count,
                         const uint32_t *b, uint32_t b_count, uint32_t *ret, uint32_t *second)
{
    ASSERT(p->known);
    uint32_t *at = append_ids(ret, p->before.ids, p->before.count);
    at = append_ids(at, a, a_count);
    *second = p->typed ? (uint32_t)(at - ret) + p->zeros : 0;
    at = append_ids(at, p->between.ids, p->between.count);
    at = append_ids(at, b, b_count);
    append_ids(at, p->behind.ids, p->behind.count);
}

/* ---- encoding ---- */

/* Bytes of a text from which on pieces come again often enough to pay for a table of them. */
#define KNOWN_FROM 2048

struct encoding {
    const struct tokenizer *t;
    struct arena *scratch;
    const struct wanted *wanted;
    struct split_budget budget; /* budget of all its patterns */
    struct bpe_ids out;
    struct piece_ids known;
    bool first;        /* nothing stands before the text that is walked next */
    size_t done, look; /* bytes encoded; the count at which cancellation is polled */
    /* Marks. */
    const char *text; /* NULL: the walked text is a normalised copy, whose bytes differ */
    struct tokenizer_marks *marks;
    uint32_t marked;
    size_t before; /* tokens of the bytes before the last pass */
};

/* All tokens until now are of bytes before `byte`, and no later one exists yet. */
static void pass(struct encoding *e, size_t byte)
{
    ASSERT(!e->marks || e->marked <= e->marks->count);
    for (; e->marks && e->marked < e->marks->count && e->marks->bytes[e->marked] < byte; e->marked++)
        e->marks->tokens[e->marked] = (uint32_t)e->before;
    e->before = e->out.count;
}

static int encode_new(struct encoding *e, struct slice piece)
{
    uint32_t id;
    if (e->t->ignore_merges && hash_map_get(&e->t->by_bytes, piece, &id))
        return bpe_ids_put(&e->out, id);
    if (e->t->model == TOKENIZER_WORDPIECE)
        return wordpiece_encode(&e->t->wordpiece, piece, e->wanted, &e->out);
    if (e->t->model == TOKENIZER_UNIGRAM)
        return unigram_encode(&e->t->unigram, e->scratch, piece, e->wanted, &e->out);
    if (e->t->model == TOKENIZER_CHARS)
        return bpe_chars_encode(&e->t->chars, e->scratch, piece, &e->known, e->wanted, &e->out);
    return bpe_encode(&e->t->bpe, e->scratch, piece, e->wanted, &e->out);
}

static int encode_piece(void *arg, const struct pretok_piece *p)
{
    struct encoding *e = arg;
    if (e->text && !p->copied)
        pass(e, (size_t)(p->text.ptr - e->text));
    int r = wanted_pass(e->wanted, e->done, &e->look);
    e->done += p->text.len;
    if (r == 0)
        r = piece_ids_put(&e->known, p->text, &e->out);
    if (r != 0)
        return MIN_OF(r, 0);
    size_t first = e->out.count;
    r = encode_new(e, p->text);
    if (r == 0)
        piece_ids_keep(&e->known, p->text, &e->out, first);
    return r;
}

static int encode_pieces(struct encoding *e, struct slice text)
{
    const struct pretok_run run = {&e->t->pretok, e->scratch, &e->budget, encode_piece, e};
    const struct pretok_piece piece = {.text = text, .first = e->first};
    e->first = false;
    return pretok_pieces(&run, &piece);
}

/* Normalised text. */
static int encode_normalised(struct encoding *e, struct slice text)
{
    struct added_walk walk;
    struct added_match match;
    int r;
    ASSERT(e->t->added_normalized.count > 0);
    added_walk_init(&walk, &e->t->added_normalized, text, e->wanted);
    do {
        match = added_walk_next(&walk);
        r = match.error < 0 ? match.error : encode_pieces(e, match.before);
        e->first = e->first && !match.found;
        if (r == 0 && match.found)
            r = bpe_ids_put(&e->out, match.id);
    } while (r == 0 && match.found);
    return r;
}

/* Text with no added token of the raw text in it. */
static int encode_between(struct encoding *e, struct slice text, bool added)
{
    size_t mark = arena_mark(e->scratch);
    const char *begin = e->text, *ptr = text.ptr;
    int r = normalizer_run(&e->t->normalizer, e->scratch, text, &e->budget, &text);
    if (text.ptr != ptr)
        e->text = NULL;
    if (r == 0 && (!added || e->t->added_normalized.count == 0))
        r = encode_pieces(e, text);
    else if (r == 0)
        r = encode_normalised(e, text);
    e->text = begin;
    arena_rewind(e->scratch, mark);
    return r;
}

static int encode_text(struct encoding *e, struct slice text, bool added)
{
    if (!added)
        return encode_between(e, text, false);
    struct added_walk walk;
    struct added_match match;
    int r;
    added_walk_init(&walk, &e->t->added_raw, text, e->wanted);
    do {
        size_t from = walk.from;
        match = added_walk_next(&walk);
        ASSERT(match.error < 0 || from + match.before.len <= text.len);
        pass(e, from);
        r = match.error < 0 ? match.error : encode_between(e, match.before, true);
        pass(e, from + match.before.len);
        e->first = false;
        if (r == 0 && match.found)
            r = bpe_ids_put(&e->out, match.id);
    } while (r == 0 && match.found);
    return r;
}

static int encode_constants(const uint32_t *ids, uint32_t count, struct bpe_ids *out)
{
    int r = 0;
    for (uint32_t i = 0; i < count && r == 0; i++)
        r = bpe_ids_put(out, ids[i]);
    return r;
}

/* utf8_valid_bytes(), in parts. */
static int valid_bytes(struct slice text, const struct wanted *w, size_t *ret)
{
    int r = 0;
    size_t at = 0;
    for (size_t more = 1; r == 0 && more > 0; at += more) {
        r = wanted_check(w);
        /* A part may end within a character: the next one starts with it. */
        more = utf8_valid_bytes(slice_sub(text, at, WANTED_BYTES));
    }
    ASSERT(at <= text.len);
    *ret = at;
    return r;
}

int tokenizer_exceeds(const struct tokenizer *t, struct slice text, size_t tokens, const struct wanted *w)
{
    return token_bound_exceeds(&t->bound, text, tokens, w);
}

uint64_t tokenizer_planned_bytes(uint64_t file_bytes)
{
    return ((uint64_t)4 << 20) + 3 * file_bytes;
}

size_t tokenizer_bytes_max(const struct tokenizer *t, size_t tokens)
{
    return token_bound_bytes(&t->bound, tokens);
}

int tokenizer_encode(const struct tokenizer *t, struct arena *scratch, struct slice text,
                     const struct tokenizer_opts *opts, uint32_t *ids, size_t ids_max, size_t *count,
                     struct err *e)
{
    if (text.len > TOKENIZER_TEXT_BYTES_MAX)
        return err_set(e, -E2BIG, "the text has %zu bytes; the limit is %zu", text.len,
                       TOKENIZER_TEXT_BYTES_MAX);
    size_t valid = 0;
    int r = valid_bytes(text, opts->wanted, &valid);
    if (r == 0 && valid < text.len)
        return err_set(e, -EINVAL, "the text is not UTF-8: byte %zu of %zu", valid, text.len);
    struct encoding en = {.t = t,
                          .scratch = scratch,
                          .wanted = opts->wanted,
                          .out = {.ids = ids, .max = ids_max},
                          .first = true,
                          .text = text.ptr,
                          .marks = opts->marks};
    split_budget_init(&en.budget, opts->wanted);
    size_t mark = arena_mark(scratch);
    if (r == 0 && text.len >= KNOWN_FROM)
        r = piece_ids_init(&en.known, scratch);
    if (r == 0 && opts->add_special)
        r = encode_constants(t->prefix, t->prefix_count, &en.out);
    if (r == 0)
        r = encode_text(&en, text, opts->added_tokens);
    for (size_t all = en.out.count; en.marks && en.marked < en.marks->count; en.marked++)
        en.marks->tokens[en.marked] = (uint32_t)(en.marks->bytes[en.marked] < text.len ? en.before : all);
    if (r == 0 && opts->add_special)
        r = encode_constants(t->suffix, t->suffix_count, &en.out);
    arena_rewind(scratch, mark);
    if (r == -E2BIG)
        return err_set(e, r, "the text has more than %zu tokens", ids_max);
    if (r == -EINVAL)
        return err_set(e, r, "the text has a character for which the tokenizer has no token");
    if (r == -ELOOP)
        return err_set(e, r, "the pattern \"%.*s\" of the tokenizer takes too many steps",
                       SLICE_ARGS(split_regex_source(en.budget.over)));
    if (r == -ENOMEM)
        return err_set(e, r, "no memory to tokenize %zu bytes", text.len);
    if (r < 0)
        return err_set(e, r, "tokenizing %zu bytes was not wanted any more", text.len);
    ASSERT(en.out.count <= ids_max);
    *count = en.out.count;
    return 0;
}
