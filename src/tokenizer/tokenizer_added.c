/* tokenizer_added.c - the added tokens that tokenizer_config.json changes or adds.
 *
 * transformers 5 loads tokenizer.json and then adds, in this order, the tokens of added_tokens_decoder by
 * their ids, the named special tokens (eos_token, image_token ...) and the list of further special tokens. A
 * token that is already added gets the flags of added_tokens_decoder. A token of model.vocab keeps its id.
 * Any other token gets the next free id, whatever id added_tokens_decoder has: a file in which the two differ
 * is refused here, since the model's rows then belong to other tokens. */
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_read.h"

#include "base/check.h"
#include "base/err.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FILE_NAME "tokenizer_config.json"

struct merge {
    const json_t *vocab, *config;
    json_t *list;  /* added_tokens of tokenizer.json */
    json_t *known; /* from a token's content to its entry in `list` */
    json_t *named; /* contents of the named special tokens, each with its token */
    json_int_t next;
    struct err *e;
};

/* An entry of added_tokens_decoder. */
struct listed {
    json_int_t id;
    const json_t *token;
};

static struct slice content_of(const json_t *token)
{
    return json_slice(json_is_object(token) ? json_object_get(token, "content") : token);
}

static int no_memory(struct merge *m)
{
    return tokenizer_no_memory(m->e);
}

/* Copies the flags of an object to an entry of added_tokens; absent ones get the defaults of AddedToken. */
static int set_flags(struct merge *m, const json_t *token, json_t *entry)
{
    static const char *const flags[] = {"single_word", "lstrip", "rstrip", "special", "normalized"};
    bool special = json_is_string(token) || json_is_true(json_object_get(token, "special"));
    for (size_t i = 0; i < COUNT_OF(flags); i++) {
        const json_t *flag = json_object_get(token, flags[i]);
        bool on =
            strcmp(flags[i], "special") == 0 ? special : strcmp(flags[i], "normalized") == 0 && !special;
        if (flag && !json_is_boolean(flag))
            return err_set(m->e, -EINVAL, FILE_NAME ": %s of \"%.*s\" is not true or false", flags[i],
                           SLICE_ARGS(slice_sub(content_of(token), 0, 80)));
        if (json_object_set_new(entry, flags[i], json_boolean(flag ? json_is_true(flag) : on)) < 0)
            return no_memory(m);
    }
    return 0;
}

/* Adds a token, a string or an object, or gives a known one its flags. `id` is the token's id in the file;
 * -1: it has none. */
static int add_token(struct merge *m, const json_t *token, json_int_t id)
{
    struct slice content = content_of(token);
    if (content.len == 0)
        return 0;
    json_t *entry = json_object_getn(m->known, content.ptr, content.len);
    if (!entry) {
        const json_t *same = json_object_getn(m->vocab, content.ptr, content.len);
        json_int_t given = same ? json_integer_value(same) : m->next;
        if (!same && id >= 0 && id != given)
            return err_set(m->e, -EINVAL,
                           FILE_NAME
                           ": added_tokens_decoder gives \"%.*s\" the id %lld, but the next free id "
                           "is %lld",
                           SLICE_ARGS(slice_sub(content, 0, 80)), (long long)id, (long long)given);
        entry = json_pack("{s:s%, s:I}", "content", content.ptr, content.len, "id", given);
        if (!entry || json_array_append_new(m->list, entry) < 0 ||
            json_object_setn(m->known, content.ptr, content.len, entry) < 0)
            return no_memory(m);
        m->next += !same;
    }
    int r = set_flags(m, token, entry);
    if (r == 0 && json_object_getn(m->named, content.ptr, content.len) &&
        json_object_set_new(entry, "special", json_true()) < 0)
        r = no_memory(m);
    return r;
}

static int add_name(struct merge *m, const char *key, json_t *token)
{
    struct slice content = content_of(token);
    if (!content.ptr)
        return err_set(m->e, -EINVAL, FILE_NAME ": %.80s is not a token", key);
    if (content.len == 0 || json_object_getn(m->named, content.ptr, content.len))
        return 0;
    return json_object_setn(m->named, content.ptr, content.len, token) < 0 ? no_memory(m) : 0;
}

/* Collects the named special tokens in the order in which transformers adds them. */
static int read_names(struct merge *m)
{
    static const char *const first[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                        "pad_token", "cls_token", "mask_token"};
    json_t *config = (json_t *)m->config, *extra = json_object_get(config, "extra_special_tokens"), *token;
    const char *key;
    int r = 0;
    for (size_t i = 0; i < COUNT_OF(first) && r == 0; i++) {
        token = json_object_get(config, first[i]);
        if (token && !json_is_null(token))
            r = add_name(m, first[i], token);
    }
    json_object_foreach(config, key, token) {
        size_t len = strlen(key);
        if (r == 0 && json_is_string(token) && len > 6 && strcmp(key + len - 6, "_token") == 0)
            r = add_name(m, key, token);
    }
    json_object_foreach(extra, key, token)
        r = r == 0 ? add_name(m, key, token) : r;
    return r;
}

static int by_id(const void *a, const void *b)
{
    const struct listed *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

/* A decimal number below the limit of ids. */
static int read_id(struct merge *m, const char *text, json_int_t *ret)
{
    json_int_t id = 0;
    bool number = text[0] && strlen(text) <= 9;
    for (const char *c = text; *c && number; c++) {
        number = *c >= '0' && *c <= '9';
        id = id * 10 + (*c - '0');
    }
    if (!number || id >= TOKENIZER_IDS_MAX)
        return err_set(m->e, -EINVAL,
                       FILE_NAME ": \"%.40s\" of added_tokens_decoder is not an id from 0 to %u", text,
                       TOKENIZER_IDS_MAX - 1);
    *ret = id;
    return 0;
}

static int add_listed(struct merge *m, json_t *decoder)
{
    size_t count = 0, size = json_object_size(decoder);
    const char *key;
    json_t *token;
    int r = 0;
    if (!json_is_object(decoder) || size > TOKENIZER_ADDED_MAX)
        return err_set(m->e, -EINVAL,
                       FILE_NAME ": added_tokens_decoder is not an object of at most %u tokens",
                       TOKENIZER_ADDED_MAX);
    struct listed *all = calloc(size + 1, sizeof(*all));
    if (!all)
        return no_memory(m);
    json_object_foreach(decoder, key, token) {
        r = r == 0 ? read_id(m, key, &all[count].id) : r;
        if (r == 0 && (!json_is_object(token) || !content_of(token).ptr))
            r = err_set(m->e, -EINVAL, FILE_NAME ": id %s of added_tokens_decoder is not a token", key);
        all[count++].token = token;
    }
    qsort(all, count, sizeof(*all), by_id);
    ASSERT(count == size);
    for (size_t i = 0; i < count && r == 0; i++) {
        r = i > 0 && all[i].id == all[i - 1].id
                ? err_set(m->e, -EINVAL, FILE_NAME ": added_tokens_decoder has the id %lld twice",
                          (long long)all[i].id)
                : add_token(m, all[i].token, all[i].id);
    }
    free(all);
    return r;
}

/* Adds a token that is not added yet; a known one keeps its flags. */
static int add_missing(struct merge *m, const json_t *token)
{
    struct slice content = content_of(token);
    if (!content.ptr)
        return err_set(m->e, -EINVAL, FILE_NAME ": a further special token is not a token");
    return json_object_getn(m->known, content.ptr, content.len) ? 0 : add_token(m, token, -1);
}

static int add_further(struct merge *m)
{
    const json_t *list = json_object_get(m->config, "extra_special_tokens");
    if (json_array_size(list) == 0)
        list = json_object_get(m->config, "additional_special_tokens");
    if (json_array_size(list) > TOKENIZER_ADDED_MAX)
        return err_set(m->e, -EINVAL, FILE_NAME ": more than %u special tokens", TOKENIZER_ADDED_MAX);
    int r = 0;
    for (size_t i = 0; i < json_array_size(list) && r == 0; i++)
        r = add_missing(m, json_array_get(list, i));
    return r;
}

/* Indexes the tokens of tokenizer.json and finds the next free id. */
static int index_known(struct merge *m)
{
    m->next = (json_int_t)json_object_size(m->vocab);
    for (size_t i = 0; i < json_array_size(m->list); i++) {
        json_t *entry = json_array_get(m->list, i);
        struct slice content = content_of(entry);
        json_int_t id = json_integer_value(json_object_get(entry, "id"));
        if (content.len && json_object_setn(m->known, content.ptr, content.len, entry) < 0)
            return no_memory(m);
        if (id >= m->next && id < TOKENIZER_IDS_MAX)
            m->next = id + 1;
    }
    return 0;
}

/* Marks the tokens of tokenizer.json that have a name as special. */
static int mark_named(struct merge *m)
{
    for (size_t i = 0; i < json_array_size(m->list); i++) {
        json_t *entry = json_array_get(m->list, i);
        struct slice content = content_of(entry);
        if (content.len && json_is_object(entry) && json_object_getn(m->named, content.ptr, content.len) &&
            json_object_set_new(entry, "special", json_true()) < 0)
            return no_memory(m);
    }
    return 0;
}

static int merge_all(struct merge *m)
{
    json_t *decoder = json_object_get(m->config, "added_tokens_decoder"), *token;
    const char *key;
    int r = m->known && m->named ? index_known(m) : no_memory(m);
    if (r == 0 && json_is_true(json_object_get(m->config, "split_special_tokens")))
        r = err_set(m->e, -ENOTSUP, FILE_NAME ": split_special_tokens is not supported");
    if (r == 0)
        r = read_names(m);
    if (r == 0)
        r = decoder && !json_is_null(decoder) ? add_listed(m, decoder) : mark_named(m);
    json_object_foreach(m->named, key, token)
        r = r == 0 ? add_missing(m, token) : r;
    return r == 0 ? add_further(m) : r;
}

int tokenizer_merge_added(json_t *root, const json_t *vocab, const json_t *config, struct err *e)
{
    json_t *list = json_object_get(root, "added_tokens");
    if (!json_is_object(config) || !json_is_object(vocab) ||
        (list && !json_is_null(list) && !json_is_array(list)))
        return 0;
    if (!json_is_array(list) && json_object_set_new(root, "added_tokens", json_array()) < 0)
        return tokenizer_no_memory(e);
    struct merge m = {.vocab = vocab,
                      .config = config,
                      .list = json_object_get(root, "added_tokens"),
                      .known = json_object(),
                      .named = json_object(),
                      .e = e};
    ASSERT(json_is_array(m.list));
    int r = merge_all(&m);
    json_decref(m.known);
    json_decref(m.named);
    return r;
}
