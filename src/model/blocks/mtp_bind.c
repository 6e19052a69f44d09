/* mtp_bind.c - finding the head: its prefix, its file, and the norms and quantisation of that file's writer.
 *
 * Inside the checkpoint the head follows the checkpoint's conventions. A side file was written by another
 * program. A manifest beside it means that norms are whole; without one each norm's mean decides whether it
 * is w or w - 1. Its quantisation often differs from the model's (heads below 8 bits draft badly), and
 * config.json describes the model's: shapes decide. */
#include "model/blocks/blocks.h"
#include "model/blocks/mtp.h"
#include "model/config/json_read.h"
#include "model/family/family.h"
#include "model/load/binder.h"
#include "tensor/role.h"

#include "base/check.h"
#include "base/none.h"
#include "tensor/tensor_naming.h"
#include "weights/checkpoint.h"
#include "weights/model_json.h"

#include <errno.h>
#include <stdio.h>

static const char *const prefixes[] = {"mtp.", "language_model.mtp."};
static const char *const side_files[] = {"mtp/weights.safetensors", "model-mtp.safetensors"};

static enum mtp_form form_of(const struct config *c)
{
    return c->naming ? MTP_NEXT : c->family->mtp;
}

static uint32_t layer_index(const struct config *c)
{
    return form_of(c) == MTP_NEXT ? c->layers : 0;
}

/* Its tensors beside the layer are of that layer, or of none. A pair's norm is its second layer's. */
static const char *path_of(const struct binder *b, enum tensor_role role, char ret[BINDER_PATH_MAX])
{
    const enum mtp_form form = form_of(b->config);
    uint32_t layer = layer_index(b->config);
    if (form == MTP_PAIR && role == ROLE_MTP_NORM)
        layer++;
    return binder_path(b, form == MTP_NEXT || form == MTP_PAIR ? layer : NONE, role, ret);
}

/* The file of the head's first matrix; NULL: no head. */
static const char *find_head(struct binder *b)
{
    char path[BINDER_PATH_MAX], name[BINDER_NAME_MAX];
    struct tensor t;
    const bool own = b->config->family->mtp == MTP_LAYERS || b->config->family->mtp == MTP_PAIR;
    if (b->config->family->mtp == MTP_BLOCK)
        b->layers = "mtp_block";
    for (size_t i = 0; i < COUNT_OF(prefixes); i++) {
        if (own)
            b->prefix = b->config->naming ? "" : prefixes[i];
        binder_name(b, path_of(b, ROLE_MTP_PAIR, path), ".weight", name);
        if (binder_find_optional(b, name, &t))
            return checkpoint_file_of(b->checkpoint, name);
    }
    return NULL;
}

bool mtp_exists(const struct checkpoint *c, const struct config *config)
{
    static const char *const models[] = {"model.", "language_model.model.", "model.language_model."};
    char head[64];
    const enum mtp_form form = form_of(config);
    for (size_t i = 0; !config->naming && i < COUNT_OF(models); i++) {
        snprintf(head, sizeof(head), "%slayers.%u.eh_proj", models[i], config->layers);
        if (form == MTP_BLOCK)
            snprintf(head, sizeof(head), "%smtp_block.0.", models[i]);
        if ((form == MTP_BLOCK || form == MTP_NEXT) && checkpoint_any(c, head))
            return true;
    }
    if (!config->naming)
        return checkpoint_any(c, prefixes[0]) || checkpoint_any(c, prefixes[1]);
    snprintf(head, sizeof(head), "%s.%u.nextn.", config->naming->layers, config->layers);
    return checkpoint_any(c, head);
}

static int bind_norm(struct binder *b, enum tensor_role role, dev_ptr *ret)
{
    char path[BINDER_PATH_MAX];
    return binder_norm(b, path_of(b, role, path), b->config->hidden, ret);
}

/* True: a manifest beside the side file says that 1 has been added to its norms. */
static bool norms_are_whole(struct model_files *files, const char *file)
{
    char name[64];
    json_t *root;
    struct err e = {{0}};
    const char *slash = strrchr(file, '/');
    snprintf(name, sizeof(name), "%.*smanifest.json", slash ? (int)(slash + 1 - file) : 0, file);
    if (model_json(files, name, &root, &e) < 0)
        return false;
    struct json_read r = {.object = root, .where = "manifest.json", .e = &e};
    bool whole = json_read_u32_or(&r, "artifact_schema_version", 0, UINT32_MAX, 0) == 1 &&
                 strcmp(json_read_string_or(&r, "rmsnorm_weight_format", ""), "mlx_gamma") == 0 && !r.error;
    json_decref(root);
    return whole;
}

/* The name of its first matrix, for messages. */
static const char *name_of(const struct config *c)
{
    static const char *const names[] = {[MTP_NONE] = "",
                                        [MTP_LAYERS] = "mtp.fc",
                                        [MTP_PAIR] = "mtp.layers.0.eh_proj",
                                        [MTP_BLOCK] = "mtp_linear_proj.0",
                                        [MTP_NEXT] = "eh_proj"};
    return c->naming ? "nextn.eh_proj" : names[form_of(c)];
}

int mtp_bind_init(struct binder *b, struct model_files *files)
{
    if (b->output.has_bias)
        return err_set(b->e, -ENOTSUP, "heads of models whose logits have a bias are not computed");
    const char *file = find_head(b);
    if (!file)
        return err_set(b->e, -ENOENT, "the checkpoint has no tensor %s.weight", name_of(b->config));
    b->used = b->digest = b->source_bytes = b->parameters = b->stage_bytes = 0;
    b->active = (struct binder_active){0};
    for (size_t i = 0; i < COUNT_OF(side_files); i++) {
        if (strcmp(file, side_files[i]) != 0)
            continue;
        b->bits_by_shape = true;
        b->add_one = false;
        b->add_one_by_mean = !norms_are_whole(files, file);
    }
    return 0;
}

int mtp_bind(struct binder *b, struct mtp_weights *ret)
{
    char path[BINDER_PATH_MAX];
    const struct config *c = b->config;
    struct linear_source fc;
    *ret = (struct mtp_weights){.layer = {.config = &c->mtp_layer, .mtp = true}};
    int r = binder_linear(b, path_of(b, ROLE_MTP_PAIR, path), c->hidden, 2 * (uint64_t)c->hidden, &fc);
    if (r == 0)
        r = binder_projection(b, &fc, 1, &ret->fc);
    if (r == 0)
        r = bind_norm(b, ROLE_MTP_NORM_EMBEDDING, &ret->norm_embedding);
    if (r == 0)
        r = bind_norm(b, ROLE_MTP_NORM_HIDDEN, &ret->norm_hidden);
    if (r == 0)
        r = bind_norm(b, ROLE_MTP_NORM, &ret->norm);
    return r == 0 ? layer_bind(b, layer_index(c), &ret->layer) : r;
}
