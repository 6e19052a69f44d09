/* gguf_config.c - the metadata as the object of a config.json: most keys by a table, the others by code. */
#include "gguf/gguf_view.h"

#include "base/check.h"
#include "gguf/gguf_apart.h"
#include "gguf/gguf_arch.h"
#include "gguf/gguf_latent.h"
#include "gguf/gguf_layers.h"
#include "gguf/gguf_meta.h"
#include "gguf/gguf_rope.h"
#include "gguf/gguf_vision.h"

#include <errno.h>
#include <stdio.h>

static int find_arch(struct gguf_meta *v)
{
    char count[128];
    uint64_t experts = 0;
    struct slice name;
    if (!gguf_string(gguf_find(&v->file->head, "general.architecture"), &name) || name.len > 64)
        return err_set(v->e, -EINVAL, "metadata general.architecture is missing");
    if (slice_eq(name, SLICE("clip")))
        return err_set(
            v->e, -ENOTSUP,
            "a vision encoder (mmproj), which is not a model: it is read with the text model beside it");
    snprintf(count, sizeof(count), "%.*s.expert_count", SLICE_ARGS(name));
    if (!gguf_u64(gguf_find(&v->file->head, count), &experts))
        experts = 0;
    v->arch = gguf_arch_find(&v->file->head, name, experts > 0);
    return v->arch
               ? 0
               : err_set(v->e, -ENOTSUP,
                         "GGUF files of architecture '%.*s'%s are not supported: %s; docs/models.md lists "
                         "those that are",
                         SLICE_ARGS(name), experts > 0 ? " with experts" : "", gguf_arch_unserved(name));
}

/* Rows of tables are numbers of config.json. The MTP head's layers count as blocks. */
static int set_sizes(struct gguf_meta *v)
{
    const struct gguf_tensor *table = gguf_meta_tensor(v, "token_embd.weight"),
                             *types = gguf_meta_tensor(v, "token_types.weight");
    uint64_t blocks = gguf_meta_number(v, "block_count"), heads = gguf_meta_number(v, "nextn_predict_layers");
    if (!table || table->rank != 2)
        return err_set(v->e, -EINVAL, "the first file has no matrix token_embd.weight");
    int r = gguf_meta_set(v, v->root, "vocab_size", json_integer((json_int_t)table->shape[0]));
    if (r == 0 && blocks > heads)
        r = gguf_meta_set(v, v->root, "num_hidden_layers", json_integer((json_int_t)(blocks - heads)));
    if (r == 0 && !gguf_meta_find(v, "attention.key_length") &&
        gguf_meta_number(v, "attention.head_count") > 0)
        r = gguf_meta_set(v, v->root, "head_dim",
                          json_integer((json_int_t)(gguf_meta_number(v, "embedding_length") /
                                                    gguf_meta_number(v, "attention.head_count"))));
    if (r == 0 && types)
        r = gguf_meta_set(v, v->root, "type_vocab_size", json_integer((json_int_t)types->shape[0]));
    if (r == 0 && v->arch->score_by_width > 0 && blocks == v->arch->score_by_width)
        r = gguf_meta_set(v, v->root, "query_pre_attn_scalar",
                          json_real((double)gguf_meta_number(v, "embedding_length") /
                                    (double)gguf_meta_number(v, "attention.head_count")));
    return r;
}

/* ---- Mamba-2 ---- */

/* Files of granitehybrid say with rope.scaling.finetuned whether attention rotates. */
static int copy_ssm(struct gguf_meta *v)
{
    static const struct gguf_key keys[] = {
        {"ssm.conv_kernel", "mamba_d_conv"},
        {"ssm.state_size", "mamba_d_state"},
        {"ssm.group_count", "mamba_n_groups"},
        {"ssm.time_step_rank", "mamba_n_heads"},
        {NULL, NULL},
    };
    const uint64_t heads = gguf_meta_number(v, "ssm.time_step_rank"),
                   inner = gguf_meta_number(v, "ssm.inner_size");
    struct gguf_item item;
    struct gguf_walk w = {.value = gguf_meta_find(v, "rope.scaling.finetuned")};
    if (!v->arch->ssm)
        return 0;
    if (heads == 0 || inner % heads != 0)
        return err_set(v->e, -EINVAL,
                       "metadata %s.ssm.time_step_rank is %llu, which does not divide ssm.inner_size %llu",
                       v->arch->name, (ull)heads, (ull)inner);
    int r = gguf_meta_copy_keys(v, keys);
    if (r == 0)
        r = gguf_meta_set_number(v, "mamba_d_head", inner / heads);
    const bool rotates = w.value && gguf_next(&w, &item) && item.kind == GGUF_IS_BOOL && item.flag;
    return r == 0
               ? gguf_meta_set(v, v->root, "position_embedding_type", json_string(rotates ? "rope" : "nope"))
               : r;
}

/* Numbers that llama.cpp reads of every architecture, and of which these have one value. */
static int check_numbers(struct gguf_meta *v)
{
    const uint64_t groups = gguf_meta_number(v, "expert_group_count"),
                   rotate = gguf_meta_number(v, "rope.dimension_count"),
                   local = gguf_meta_number(v, "rope.dimension_count_swa");
    if (groups > 1 && !json_object_get(v->root, "n_group"))
        return err_set(v->e, -ENOTSUP, "metadata %s.expert_group_count: %llu is not supported", v->arch->name,
                       (ull)groups);
    if (local > 0 && rotate > 0 && !v->arch->apart &&
        local != (v->arch->two_sizes ? gguf_meta_number(v, "attention.key_length_swa") : rotate))
        return err_set(v->e, -ENOTSUP,
                       "metadata %s.rope.dimension_count_swa: %llu is not supported beside "
                       "rope.dimension_count %llu",
                       v->arch->name, (ull)local, (ull)rotate);
    return 0;
}

static int add_facts(struct gguf_meta *v)
{
    const bool sees = v->file->encoder && v->arch->sees;
    int r = gguf_meta_set(v, v->root, "model_type", json_string(sees ? v->arch->sees : v->arch->model_type));
    if (r == 0 && v->file->encoder)
        r = gguf_vision_config(&v->file->head, v->file->encoder, v->root, v->e);
    if (r == 0 && v->arch->flag.key)
        r = gguf_meta_set(v, v->root, v->arch->flag.name,
                          json_boolean(gguf_meta_tensor(v, v->arch->flag.key) != NULL));
    if (r < 0 || !v->arch->facts)
        return r;
    json_t *facts = json_loads(v->arch->facts, 0, NULL);
    r = facts && json_object_update_recursive(v->root, facts) == 0 ? 0 : -ENOMEM;
    json_decref(facts);
    return r == 0 ? 0 : err_set(v->e, r, "no memory left for the configuration");
}

static int fill(struct gguf_meta *v)
{
    int r = find_arch(v);
    if (r == 0 && v->arch->refused)
        return add_facts(v);
    if (r == 0)
        r = gguf_meta_copy_keys(v, gguf_arch_keys);
    if (r == 0)
        r = gguf_meta_copy_keys(v, v->arch->keys);
    if (r == 0)
        r = set_sizes(v);
    if (r == 0)
        r = gguf_rope_copy(v);
    if (r == 0)
        r = gguf_latent_copy(v);
    if (r == 0)
        r = gguf_latent_copy_router(v);
    if (r == 0)
        r = gguf_layers_copy_windows(v);
    if (r == 0)
        r = gguf_apart_copy(v);
    if (r == 0)
        r = gguf_layers_copy_limits(v);
    if (r == 0)
        r = gguf_layers_copy_recurrent(v);
    if (r == 0)
        r = gguf_layers_copy_kinds(v);
    if (r == 0)
        r = gguf_layers_copy_two_sizes(v);
    if (r == 0)
        r = gguf_layers_count_dense(v);
    if (r == 0)
        r = gguf_layers_copy_xielu(v);
    if (r == 0)
        r = copy_ssm(v);
    if (r == 0)
        r = check_numbers(v);
    if (r == 0 && gguf_meta_number(v, "attention.sliding_window") == 0)
        json_object_del(v->root, "sliding_window");
    return r == 0 ? add_facts(v) : r;
}

/* llama.cpp's converter keeps these two rows of Qwen3-Reranker's output matrix. A score is their softmax's
 * first number: the sigmoid of the difference. */
static bool is_yes_no(const struct gguf_meta *v)
{
    static const struct slice labels[] = {{"yes", 3}, {"no", 2}};
    struct gguf_walk w = {.value = gguf_meta_find(v, "classifier.output_labels")};
    struct gguf_item item;
    size_t count = 0;
    for (bool same = true; w.value && gguf_next(&w, &item); count++) {
        same = same && count < COUNT_OF(labels) && item.kind == GGUF_IS_STRING &&
               slice_eq(item.string, labels[count]);
        if (!same)
            return false;
    }
    return count == COUNT_OF(labels);
}

int gguf_config_read(const struct gguf_head *file, json_t **ret, struct err *e)
{
    struct gguf_meta v = {.file = file, .root = json_object(), .e = e};
    v.rope = json_object();
    int r = gguf_meta_set(&v, v.root, "rope_parameters", v.rope);
    if (r == 0)
        r = fill(&v);
    if (r < 0)
        json_decref(v.root);
    else
        *ret = v.root;
    return r;
}

int gguf_view_naming(const struct gguf_head *file, const struct tensor_naming **ret, struct err *e)
{
    struct gguf_meta v = {.file = file, .e = e};
    int r = find_arch(&v);
    if (r == 0)
        *ret = &v.arch->naming;
    return r;
}

/* ---- pooling ---- */

static const char *pooling_of(const struct gguf_meta *v)
{
    /* Rows at length 1. GGUF_POOLING_RANK, of scores, has none. */
    static const char *const modes[] = {NULL, "mean", "cls", "lasttoken"};
    const uint64_t kind = gguf_meta_number(v, "pooling_type");
    return kind < COUNT_OF(modes) ? modes[kind] : NULL;
}

/* Modules of sentence-transformers. */
int gguf_config_modules(const struct gguf_head *file, json_t **ret, struct err *e)
{
    struct gguf_meta v = {.file = file, .e = e};
    int r = find_arch(&v);
    if (r < 0)
        return r;
    if (pooling_of(&v))
        *ret = json_pack("[{s:s}, {s:s, s:s}, {s:s}]", "type", "Transformer", "type", "Pooling", "path",
                         GGUF_POOLING_FOLDER, "type", "Normalize");
    else if (gguf_meta_number(&v, "pooling_type") == GGUF_POOLING_RANK && is_yes_no(&v))
        *ret = json_pack("[{s:s}, {s:s, s:[s, s]}]", "type", "Transformer", "type", "LogitScore", "labels",
                         "yes", "no");
    else
        return -ENOENT;
    return *ret ? 0 : -ENOMEM;
}

int gguf_config_pooling(const struct gguf_head *file, json_t **ret, struct err *e)
{
    struct gguf_meta v = {.file = file, .e = e};
    int r = find_arch(&v);
    if (r < 0 || !pooling_of(&v))
        return r < 0 ? r : -ENOENT;
    *ret = json_pack("{s:s}", "pooling_mode", pooling_of(&v));
    return *ret ? 0 : -ENOMEM;
}
