/* model_use.c - modules.json says that a model embeds, and so does an encoder. A model with a classifier
 * scores. Another reranker is a generator that answers "yes" or "no": its configuration or its name says
 * so. */
#include "registry/model_use.h"

#include "registry/model_settings.h"

#include "base/check.h"
#include "model/config/json_read.h"
#include "tokenizer/tokenizer.h"
#include "weights/model_json.h"

#include <errno.h>
#include <string.h>

const char *model_kind_name(enum model_kind k)
{
    static const char *const names[] = {"generate", "embed", "rerank"};
    ASSERT((size_t)k < COUNT_OF(names));
    return names[k];
}

static int configured_as_reranker(struct model_files *files, bool *ret, struct err *e)
{
    json_t *config = NULL;
    *ret = false;
    int r = model_json(files, "config.json", &config, e);
    if (r == -ENOENT) /* its configuration lies elsewhere, which has no such keys */
        return 0;
    if (r < 0)
        return r;
    struct json_read in = {.object = config, .where = "config.json", .e = e};
    *ret = json_read_bool_or(&in, "is_original_qwen3_reranker", false) ||
           json_is_array(json_object_get(config, "classifier_from_token"));
    json_decref(config);
    return in.error;
}

/* The id of a word that is one token of the model. */
static bool find_word(const struct tokenizer *t, uint32_t vocab, struct arena *scratch, struct slice word,
                      uint32_t *ret)
{
    const struct tokenizer_opts opts = {.added_tokens = false};
    struct err ignored = {{0}};
    uint32_t ids[8];
    size_t count = 0;
    if (tokenizer_encode(t, scratch, word, &opts, ids, COUNT_OF(ids), &count, &ignored) < 0 || count != 1 ||
        ids[0] >= vocab)
        return false;
    *ret = ids[0];
    return true;
}

/* By its id, or by its directory where an alias is the id. */
static bool is_called_reranker(const struct model_settings *s)
{
    const char *slash = strrchr(s->dir, '/');
    return strcasestr(s->id, "reranker") || strcasestr(slash ? slash : s->dir, "reranker");
}

/* A classifier reads the first row of an encoder, the last one of a decoder. */
static void use_classifier(const struct model_shape *shape, const struct tokenizer *tokenizer,
                           struct model_use *ret)
{
    *ret = (struct model_use){.kind = MODEL_RERANKS,
                              .scores = tokenizer != NULL,
                              .pooling = {.kind = shape->encoder ? POOLING_CLS : POOLING_LAST}};
}

int model_use_load(const struct model_settings *s, struct model_files *files, const struct model_shape *shape,
                   const struct tokenizer *tokenizer, struct arena *scratch, struct model_use *ret,
                   struct err *e)
{
    struct model_use u = {.kind = MODEL_GENERATES};
    bool reranks = false, all = s->options.embeddings;
    int r = pooling_config_load(files, shape->hidden, &u.pooling, e);
    if (r == 0)
        r = configured_as_reranker(files, &reranks, e);
    if (r < 0)
        return r;
    reranks |= u.pooling.scores || is_called_reranker(s);
    if (shape->labels > 0) {
        use_classifier(shape, tokenizer, ret);
        return 0;
    }
    if (u.pooling.kind == POOLING_NONE && shape->both_ways)
        u.pooling = (struct pooling_config){.kind = POOLING_MEAN, .normalize = true};
    if (u.pooling.kind != POOLING_NONE)
        u.kind = MODEL_EMBEDS;
    else if (reranks)
        u.kind = MODEL_RERANKS;
    u.texts = u.kind != MODEL_EMBEDS;
    u.vectors = u.kind == MODEL_EMBEDS || all;
    u.scores = u.kind == MODEL_RERANKS || (u.kind == MODEL_GENERATES && all);
    if (u.pooling.kind == POOLING_NONE && u.vectors)
        u.pooling = (struct pooling_config){.kind = POOLING_LAST, .normalize = true};
    u.scores = u.scores && tokenizer && find_word(tokenizer, shape->vocab, scratch, SLICE("yes"), &u.yes) &&
               find_word(tokenizer, shape->vocab, scratch, SLICE("no"), &u.no);
    *ret = u;
    return 0;
}
