/* eagle_bind.c - the configuration and the tensors of an EAGLE-3 checkpoint.
 *
 * Its layer is llama's under the name midlayer, or layers.0. The configuration lists the layers whose outputs
 * it reads by their indices. Without a list they are 1, half of the layers less one, and the fourth from the
 * end, as in the first such checkpoints. */
#include "model/blocks/blocks.h"
#include "model/blocks/eagle.h"
#include "model/blocks/layer.h"
#include "model/blocks/mtp.h"
#include "model/family/family.h"
#include "model/load/binder.h"
#include "tensor/role.h"

#include "base/arena.h"
#include "base/check.h"
#include "base/json/json_dumped.h"
#include "base/none.h"
#include "compute/backend.h"
#include "weights/checkpoint.h"
#include "weights/model_json.h"

#include <endian.h>
#include <errno.h>
#include <jansson.h>
#include <string.h>

#define LAYER_NAMES(role, name)                                                                              \
    {role, "midlayer." name},                                                                                \
    {                                                                                                        \
        role, "layers.0." name                                                                               \
    }

static const struct tensor_name tensors[] = {
    LAYER_NAMES(ROLE_MIXER_NORM, "input_layernorm"),
    LAYER_NAMES(ROLE_MTP_NORM_HIDDEN, "hidden_norm"),
    LAYER_NAMES(ROLE_MLP_NORM, "post_attention_layernorm"),
    LAYER_NAMES(ROLE_Q, "self_attn.q_proj"),
    LAYER_NAMES(ROLE_K, "self_attn.k_proj"),
    LAYER_NAMES(ROLE_V, "self_attn.v_proj"),
    LAYER_NAMES(ROLE_O, "self_attn.o_proj"),
    LAYER_NAMES(ROLE_GATE, "mlp.gate_proj"),
    LAYER_NAMES(ROLE_UP, "mlp.up_proj"),
    LAYER_NAMES(ROLE_DOWN, "mlp.down_proj"),
    {ROLE_NONE, NULL},
};

static const struct family family = {.names = {"eagle3"}, .tensors = tensors, .mtp = MTP_LAYERS};

/* ---- configuration ---- */

/* Options that change what the head computes, and that the code here does not know. */
static int check_options(const json_t *root, struct err *e)
{
    static const char *const unknown[] = {"norm_before_fc", "norm_output", "parallel_drafting"};
    for (size_t i = 0; i < COUNT_OF(unknown); i++) {
        const json_t *value = json_object_get(root, unknown[i]);
        if (value && !json_is_false(value) && !json_is_null(value))
            return err_set(e, -ENOTSUP, "config.json has %s, which is not computed for EAGLE-3 heads",
                           unknown[i]);
    }
    const json_t *scale = json_object_get(root, "logit_scale");
    if (json_is_number(scale) && json_number_value(scale) <= 0)
        return err_set(e, -ENOTSUP, "logit_scale must be above 0");
    const json_t *use = json_object_get(json_object_get(root, "eagle_config"), "use_aux_hidden_state");
    return json_is_false(use) ? err_set(e, -ENOTSUP,
                                        "use_aux_hidden_state is false: only heads that read outputs of "
                                        "three layers are computed")
                              : 0;
}

/* The form of vLLM's speculators: the layer's numbers are an object, and an index of a layer is that of the
 * next one. */
static const json_t *speculator_layer(const json_t *root)
{
    return json_object_get(root, "speculators_model_type") ? json_object_get(root, "transformer_layer_config")
                                                           : NULL;
}

static int read_layers(const json_t *root, const struct config *c, struct eagle *g, struct err *e)
{
    static const char key[] = "eagle_aux_hidden_state_layer_ids";
    const json_t *list = json_object_get(root, key);
    const json_int_t first = speculator_layer(root) ? 1 : 0;
    if (!list)
        list = json_object_get(json_object_get(root, "eagle_config"), key);
    if (json_array_size(list) == 0) {
        if (c->layers < 5)
            return err_set(e, -EINVAL, "%s is missing, and a model of %u layers has no usual ones", key,
                           c->layers);
        g->layers[0] = 1;
        g->layers[1] = c->layers / 2 - 1;
        g->layers[2] = c->layers - 4;
        return 0;
    }
    for (uint32_t i = 0; i < EAGLE_LAYERS; i++) {
        json_int_t id = json_integer_value(json_array_get(list, i)) - first;
        if (json_array_size(list) != EAGLE_LAYERS || id < 0 || id >= c->layers)
            return err_set(e, -EINVAL, "%s must have three numbers below the model's %u layers", key,
                           c->layers);
        g->layers[i] = (uint32_t)id;
    }
    return 0;
}

static int load_config(struct arena *tables, struct model_files *files, const json_t *root,
                       struct config *ret, struct err *e)
{
    const json_t *layer = speculator_layer(root);
    if (!layer)
        return config_load(tables, files, ret, e);
    char *text = json_dumps(layer, JSON_COMPACT);
    int r = text ? config_parse(tables, slice_of(text), ret, e) : err_set(e, -ENOMEM, "no memory left");
    json_dumped_free(text);
    return r;
}

static int read_own(const json_t *root, const struct config *c, struct eagle *g, struct err *e)
{
    const json_t *rows = json_object_get(root, "draft_vocab_size");
    g->tokens = c->vocab;
    g->vocab = json_is_integer(rows) && json_integer_value(rows) > 0 && json_integer_value(rows) < c->vocab
                   ? (uint32_t)json_integer_value(rows)
                   : c->vocab;
    g->norm_first = json_is_true(json_object_get(root, "norm_before_residual"));
    int r = check_options(root, e);
    return r == 0 ? read_layers(root, c, g, e) : r;
}

static int check_config(const struct config *own, const struct config *c, struct err *e)
{
    if (strcmp(own->family_name, "llama") != 0 || own->layers != 1)
        return err_set(e, -ENOTSUP, "an EAGLE-3 head is one layer of llama; this one is %u of %s",
                       own->layers, own->family_name);
    if (own->hidden != c->hidden)
        return err_set(e, -EINVAL, "its hidden size is %u, and the model's %u", own->hidden, c->hidden);
    if (c->layer_norm || c->family->encoder || c->both_ways)
        return err_set(e, -ENOTSUP, "EAGLE-3 heads are not computed for %s", c->family_name);
    if (own->ropes[0].type == ROPE_LONG)
        return err_set(e, -ENOTSUP, "a longrope is not supported in an EAGLE-3 head");
    return 0;
}

/* A table of the model with the same angles, or one more. */
static int find_rope(struct config *own, struct config *c, uint32_t *ret, struct err *e)
{
    uint32_t i = 0;
    while (i < c->rope_count && memcmp(&c->ropes[i], &own->ropes[0], sizeof(c->ropes[i])) != 0)
        i++;
    if (i == ROPES_MAX)
        return err_set(e, -ENOTSUP, "its rotation differs from the model's %d", ROPES_MAX);
    c->ropes[i] = own->ropes[0];
    c->rope_count = MAX_OF(c->rope_count, i + 1);
    memcpy(own->ropes, c->ropes, sizeof(own->ropes));
    own->rope_count = c->rope_count;
    *ret = i;
    return 0;
}

int eagle_read(struct arena *tables, struct model_files *files, struct config *c, struct eagle **ret,
               struct err *e)
{
    struct eagle *g = arena_alloc(tables, sizeof(*g));
    uint32_t rope = 0;
    if (!g)
        return err_set(e, -ENOMEM, "no memory left for an EAGLE-3 head");
    *g = (struct eagle){.vocab = 0};
    json_t *root;
    int r = model_json(files, "config.json", &root, e);
    if (r < 0)
        return r;
    r = load_config(tables, files, root, &g->config, e);
    if (r == 0)
        r = check_config(&g->config, c, e);
    if (r == 0)
        r = read_own(root, c, g, e);
    json_decref(root);
    if (r == 0)
        r = find_rope(&g->config, c, &rope, e);
    if (r < 0)
        return r;
    struct layer_config *l = &g->config.layer[0];
    l->index = c->kv_count;
    l->rope = rope;
    l->pair = true;
    g->config.family = &family;
    g->config.backend = c->backend;
    g->config.compute = c->compute;
    g->config.kv_form = c->kv_form;
    g->config.quant = c->quant;
    c->mtp_layer = *l;
    *ret = g;
    return 0;
}

/* ---- tensors ---- */

static int find_prefix(struct binder *b)
{
    static const char *const prefixes[] = {"", "model."};
    for (size_t i = 0; i < COUNT_OF(prefixes); i++) {
        b->prefix = prefixes[i];
        if (binder_has(b, "fc"))
            return 0;
    }
    return err_set(b->e, -EINVAL, "the checkpoint has no tensor fc.weight");
}

static int bind_matrix(struct binder *b, const char *path, uint64_t out, uint64_t in, struct projection *ret)
{
    struct linear_source source;
    int r = binder_linear(b, path, out, in, &source);
    if (r == 0 && source.has_bias)
        r = err_set(b->e, -ENOTSUP, "tensor %s.bias: a bias of this matrix is not supported", path);
    return r < 0 ? r : binder_projection(b, &source, 1, ret);
}

/* An embedding of its own replaces the model's: it has a row for each token. */
static int bind_embedding(struct binder *b, const struct eagle *g, struct weight *ret)
{
    const uint32_t rows = g->config.vocab;
    *ret = (struct weight){.n = 0};
    if (!binder_has(b, "embed_tokens"))
        return 0;
    if (rows < g->tokens)
        return err_set(b->e, -EINVAL, "its embed_tokens has %u rows, and the model %u tokens", rows,
                       g->tokens);
    return binder_table(b, "embed_tokens", rows, g->config.hidden, ret);
}

int eagle_bind(struct binder *b, const struct eagle *g, struct mtp_weights *weights,
               struct eagle_weights *ret)
{
    char path[BINDER_PATH_MAX];
    const uint32_t hidden = g->config.hidden;
    *weights = (struct mtp_weights){.layer = {.config = &g->config.layer[0], .mtp = true}};
    *ret = (struct eagle_weights){.ids = NULL};
    int r = find_prefix(b);
    if (r == 0)
        r = bind_matrix(b, "fc", hidden, (uint64_t)EAGLE_LAYERS * hidden, &ret->fuse);
    if (r == 0)
        r = bind_embedding(b, g, &ret->embedding);
    if (r == 0)
        r = binder_norm(b, binder_path(b, NONE, ROLE_MTP_NORM_HIDDEN, path), hidden, &weights->norm_hidden);
    if (r == 0)
        r = layer_bind(b, NONE, &weights->layer);
    if (r == 0)
        r = binder_norm(b, binder_path(b, NONE, ROLE_MTP_NORM, path), hidden, &weights->norm);
    b->prefix = "";
    if (r == 0)
        r = bind_matrix(b, "lm_head", g->vocab, hidden, &ret->head);
    weights->norm_embedding = weights->layer.norm_mixer.before.weight;
    weights->layer.norm_mlp.before.eps = g->config.eps;
    return r;
}

int eagle_read_ids(struct arena *tables, const struct checkpoint *c, const struct eagle *g, uint32_t **ret,
                   struct err *e)
{
    const uint32_t vocab = g->tokens;
    struct tensor t;
    int64_t part[128];
    *ret = NULL;
    if (!checkpoint_find(c, "d2t", &t)) {
        bool whole = g->vocab == vocab;
        return whole ? 0
                     : err_set(e, -EINVAL, "the checkpoint has no tensor d2t, the ids of its %u rows",
                               g->vocab);
    }
    if (t.dtype != DTYPE_I64 || t.rank != 1 || t.shape[0] != g->vocab)
        return err_set(e, -EINVAL, "tensor d2t must have %u numbers of 64 bits", g->vocab);
    uint32_t *ids = ARENA_ARRAY(tables, uint32_t, g->vocab);
    if (!ids)
        return err_set(e, -ENOMEM, "no memory left for the ids of %u rows", g->vocab);
    for (uint32_t i = 0; i < g->vocab; i++) {
        uint32_t at = i % COUNT_OF(part), count = MIN_OF(g->vocab - i, (uint32_t)COUNT_OF(part));
        int r = at == 0 ? checkpoint_read(c, &t, i * sizeof(part[0]), part, count * sizeof(part[0]), e) : 0;
        if (r < 0)
            return r;
        int64_t offset = (int64_t)le64toh((uint64_t)part[at]);
        if (offset < -(int64_t)i || offset >= (int64_t)vocab - i)
            return err_set(e, -EINVAL, "tensor d2t[%u] is %lld: the model has %u tokens", i,
                           (long long)offset, vocab);
        ids[i] = (uint32_t)(i + offset);
    }
    *ret = ids;
    return 0;
}
