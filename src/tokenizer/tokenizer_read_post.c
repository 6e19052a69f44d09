/* tokenizer_read_post.c - the post-processor: tokens around the text. */
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_read.h"
#include "tokenizer/tokenizer_state.h"
#include "tokenizer/vocab.h"

#include "base/check.h"
#include "base/err.h"

#include <errno.h>

/* The ids of one special token of a template. */
static int template_token(const struct tokenizer *t, const json_t *template, const json_t *special,
                          uint32_t *ids, uint32_t *count, struct err *e)
{
    const json_t *name = json_object_get(special, "id");
    const json_t *entry = json_object_get(json_object_get(template, "special_tokens"),
                                          json_is_string(name) ? json_string_value(name) : "");
    const json_t *list = json_object_get(entry, "ids");
    ASSERT(*count <= TOKENIZER_TEMPLATE_MAX);
    for (size_t i = 0; i < json_array_size(list); i++) {
        uint32_t id = 0;
        int r = tokenizer_id_check(json_array_get(list, i), json_slice(name), &id, e);
        if (r < 0)
            return r;
        if (!vocab_has(&t->vocab, id) || *count == TOKENIZER_TEMPLATE_MAX)
            break;
        ids[(*count)++] = id;
        if (i + 1 == json_array_size(list))
            return 0;
    }
    return err_set(
        e, -EINVAL,
        "tokenizer.json: post_processor: \"%.*s\" has no ids, unknown ids, or more than %d tokens come "
        "together",
        SLICE_ARGS(slice_sub(json_slice(name), 0, 80)), TOKENIZER_TEMPLATE_MAX);
}

static int read_template(struct tokenizer *t, const json_t *template, struct err *e)
{
    const json_t *single = json_object_get(template, "single");
    bool behind = false;
    ASSERT(t->prefix_count == 0 && t->suffix_count == 0);
    for (size_t i = 0; i < json_array_size(single); i++) {
        const json_t *special = json_object_get(json_array_get(single, i), "SpecialToken");
        if (!special) {
            if (behind || !json_object_get(json_array_get(single, i), "Sequence"))
                return err_set(e, -EINVAL,
                               "tokenizer.json: post_processor: the template is not one Sequence "
                               "among SpecialTokens");
            behind = true;
            continue;
        }
        int r = template_token(t, template, special, behind ? t->suffix : t->prefix,
                               behind ? &t->suffix_count : &t->prefix_count, e);
        if (r < 0)
            return r;
    }
    if (!behind)
        return err_set(e, -EINVAL, "tokenizer.json: post_processor: the template has no place for the text");
    return 0;
}

static uint32_t type_of(const json_t *piece)
{
    return (uint32_t)json_integer_value(json_object_get(piece, "type_id"));
}

/* A special token of a template of two texts: of the first, between them, of the second. False: types go
 * another way. */
static bool add_pair_token(const struct tokenizer *t, const json_t *template, const json_t *special,
                           uint32_t texts, struct tokenizer_pair *p)
{
    struct tokenizer_template *const places[] = {&p->before, &p->between, &p->behind};
    ASSERT(texts < COUNT_OF(places));
    struct tokenizer_template *place = places[texts];
    uint32_t type = type_of(special), from = place->count;
    struct err ignored = {{0}};
    if (template_token(t, template, special, place->ids, &place->count, &ignored) < 0)
        return false;
    if (texts == 1 && type == 0 && p->zeros == from)
        p->zeros = place->count;
    /* Ones between the texts follow all zeros there. */
    return texts == 0 ? type == 0 : texts == 2 ? type == p->typed : type == 1 || p->zeros == place->count;
}

/* The first text, then the second, each once; its types are 0, then 1 or all 0. */
static void read_pair_template(const struct tokenizer *t, const json_t *template, struct tokenizer_pair *ret)
{
    const json_t *pieces = json_object_get(template, "pair");
    struct tokenizer_pair p = {.known = true};
    uint32_t texts = 0;
    for (size_t i = 0; i < json_array_size(pieces) && p.known; i++) {
        const json_t *piece = json_array_get(pieces, i), *special = json_object_get(piece, "SpecialToken");
        const json_t *text = json_object_get(piece, "Sequence");
        if (special) {
            p.known = add_pair_token(t, template, special, texts, &p);
            continue;
        }
        p.known = texts < 2 && json_is(json_object_get(text, "id"), texts == 0 ? "A" : "B") &&
                  type_of(text) <= texts;
        if (texts == 1)
            p.typed = type_of(text) == 1;
        texts++;
    }
    p.known = p.known && texts == 2 && (p.typed || p.zeros == p.between.count);
    ASSERT(p.zeros <= p.between.count);
    *ret = p;
}

/* ["</s>", 2] */
static int pair_token(const struct tokenizer *t, const json_t *pair, uint32_t *ret, struct err *e)
{
    struct slice name = json_slice(json_array_get(pair, 0));
    int r = tokenizer_id_check(json_array_get(pair, 1), name, ret, e);
    if (r == 0 && !vocab_has(&t->vocab, *ret))
        return err_set(e, -EINVAL, "tokenizer.json: post_processor: \"%.*s\" is not a token",
                       SLICE_ARGS(slice_sub(name, 0, 80)));
    return r;
}

/* BertProcessing, RobertaProcessing: cls, the text, sep. A second text and its sep follow, with type 1; or
 * with one more sep in front of them, and type 0. */
static int read_pair(struct tokenizer *t, const json_t *post, struct err *e)
{
    ASSERT(t->prefix_count == 0 && t->suffix_count == 0);
    int r = pair_token(t, json_object_get(post, "cls"), &t->prefix[0], e);
    if (r == 0)
        r = pair_token(t, json_object_get(post, "sep"), &t->suffix[0], e);
    t->prefix_count = t->suffix_count = 1;
    bool bert = json_is(json_object_get(post, "type"), "BertProcessing");
    uint32_t cls = t->prefix[0], sep = t->suffix[0];
    t->pair = (struct tokenizer_pair){.known = true,
                                      .before = {{cls}, 1},
                                      .between = {{sep, sep}, bert ? 1 : 2},
                                      .behind = {{sep}, 1},
                                      .typed = bert,
                                      .zeros = bert ? 1 : 2};
    return r;
}

int tokenizer_read_post_processor(struct tokenizer *t, const json_t *post, struct err *e)
{
    bool seen = false;
    int r = 0;
    t->pair.known = true; /* nothing but the texts */
    for (size_t i = 0; i < tokenizer_stage_count(post, "processors") && r == 0; i++) {
        const json_t *member = tokenizer_stage_member(post, "processors", i),
                     *type = json_object_get(member, "type");
        if (json_is(type, "ByteLevel"))
            continue;
        if (!seen && json_is(type, "TemplateProcessing")) {
            r = read_template(t, member, e);
            read_pair_template(t, member, &t->pair);
        } else if (!seen && (json_is(type, "BertProcessing") || json_is(type, "RobertaProcessing")))
            r = read_pair(t, member, e);
        else
            return err_set(
                e, -EINVAL,
                "tokenizer.json: post_processor \"%.*s\"; only ByteLevel and one TemplateProcessing, "
                "BertProcessing or RobertaProcessing can be used",
                SLICE_ARGS(tokenizer_stage_type(member)));
        seen = true;
    }
    return r;
}
