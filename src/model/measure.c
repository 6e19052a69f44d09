/* measure.c - which parts a checkpoint has, and what packing them takes: nothing of a tensor is read. */
#include "model/measure.h"

#include "model/blocks/blocks.h"
#include "model/blocks/eagle.h"
#include "model/blocks/forward.h"
#include "model/blocks/layer.h"
#include "model/blocks/layer_inputs.h"
#include "model/blocks/mtp.h"
#include "model/draft_vocab.h"
#include "model/family/family.h"
#include "model/load/unread.h"
#include "model/family/vision_family.h"
#include "model/load/vision_weights.h"

#include "base/check.h"
#include "base/none.h"
#include "compute/backend.h"
#include "tensor/quantise.h"
#include "weights/checkpoint.h"
#include "weights/model_files.h"

#include <errno.h>
#include <stdio.h>

/* Names and views of a checkpoint of a million tensors, and a layer's experts. */
#define CHECKPOINT_TABLES_MAX ((size_t)1 << 30)

int measure_account(struct account *parent, enum account_id id, struct account **ret)
{
    return parent ? accounts_open(parent, id, ACCOUNT_NO_LIMIT, ret) : 0;
}

int measure_arena(struct account *account, size_t bytes_max, struct arena **ret)
{
    struct charge charge = account ? account_charge(account) : (struct charge){0};
    struct arena_opts opts = {.bytes_max = bytes_max, .charge = account ? &charge : NULL};
    return arena_create(&opts, ret);
}

/* ---- source ---- */

void measure_source_close(struct source *s)
{
    packers_stop(&s->packers);
    arena_free(s->arena);
    model_files_close(s->eagle_files);
    account_close(s->account);
    *s = (struct source){0};
}

int measure_source_open(struct source *s, struct model_files *files, struct account *parent, struct err *e)
{
    int r = measure_account(parent, ACCOUNT_LOADING, &s->account);
    if (r == 0)
        r = measure_arena(s->account, CHECKPOINT_TABLES_MAX, &s->arena);
    if (r < 0)
        return err_set(e, r, "no memory left to open %s", model_files_path(files));
    return checkpoint_open(s->arena, files, "", s->account, &s->checkpoint, e);
}

uint64_t measure_staging_bytes(const struct measured *m)
{
    return ROUND_UP(MAX_OF(m->text.stage_bytes, m->mtp.stage_bytes), (uint64_t)65536);
}

int measure_source_begin(struct source *s, const struct device *device, uint64_t stage_bytes, struct err *e)
{
    const struct packers_opts opts = {s->checkpoint, s->account, device, stage_bytes};
    if (s->account)
        account_set_planned(s->account, arena_committed_bytes(s->arena) + packers_bytes(stage_bytes));
    int r = packers_start(&s->packers, &opts);
    return r == 0 ? 0
                  : err_set(e, r, "%llu bytes to read tensors into are more than is left", (ull)stage_bytes);
}

int measure_source_turn(struct source *s, const struct device *device, uint64_t stage_bytes, struct err *e)
{
    const struct packers_opts opts = {s->eagle_checkpoint, s->account, device, stage_bytes};
    packers_stop(&s->packers);
    int r = packers_start(&s->packers, &opts);
    return r == 0 ? 0
                  : err_set(e, r, "%llu bytes to read tensors into are more than is left", (ull)stage_bytes);
}

/* ---- binding ---- */

static int bind_layer(struct binder *b, uint32_t index, struct layer *ret)
{
    const uint64_t used = b->used + b->other.used, experts = b->experts_bytes;
    *ret = (struct layer){.config = &b->config->layer[index]};
    int r = layer_bind(b, index, ret);
    if (r == 0 && b->sizes) {
        b->sizes->experts_bytes[index] = b->experts_bytes - experts;
        b->sizes->layer_bytes[index] = b->used + b->other.used - used - b->sizes->experts_bytes[index];
        b->sizes->rest_bytes -= b->used + b->other.used - used;
    }
    return r;
}

static int bind_final_norm(struct binder *b, struct norm *ret)
{
    char path[BINDER_PATH_MAX];
    const struct config *c = b->config;
    if (c->family->norm_position == NORM_STREAM)
        binder_path(b, c->layers - 1, ROLE_MLP_NORM_AFTER, path);
    else
        binder_path(b, NONE, ROLE_FINAL_NORM, path);
    return c->family->final_norm_plain ? binder_vector(b, path, c->hidden, &ret->weight)
                                       : binder_norm_biased(b, path, c->hidden, ret);
}

static int bind_rows(struct binder *b, enum tensor_role role, uint32_t rows, struct weight *ret)
{
    char path[BINDER_PATH_MAX];
    return rows > 0 ? binder_table(b, binder_path(b, NONE, role, path), rows, b->config->hidden, ret) : 0;
}

/* Everything outside the layers. */
static int bind_ends(struct binder *b, struct model_ends *ret)
{
    int r = binder_embedding(b, &ret->embedding, &ret->head);
    if (r == 0)
        r = bind_rows(b, ROLE_POSITIONS, b->config->position_rows, &ret->positions);
    if (r == 0)
        r = bind_rows(b, ROLE_TOKEN_TYPES, b->config->token_types, &ret->types);
    if (r == 0)
        r = layer_inputs_bind(b, &ret->layer_inputs);
    if (r == 0 && b->config->family->embedding_norm)
        r = binder_ones(b, b->config->hidden, &ret->embedding_norm.weight);
    return r < 0 ? r : bind_final_norm(b, &ret->final_norm);
}

int measure_bind(struct binder *b, const struct bind_targets *to, struct bind_mark *text)
{
    struct layer l;
    int r = bind_ends(b, to->ends);
    for (uint32_t i = 0; r == 0 && i < b->config->layers; i++) {
        binder_turn(b, b->config->shards.layer[i]);
        r = bind_layer(b, i, to->layers ? &to->layers[i] : &l);
    }
    binder_turn(b, 0);
    *text = (struct bind_mark){b->used, b->digest};
    return r == 0 && b->config->vision.shape.present ? vision_bind(b, to->vision_blocks, to->vision) : r;
}

/* Finds and checks every tensor of the text model, and counts the memory that packing will take. */
static int measure_text(const struct config *c, const struct model_parts *p, const struct source *s,
                        struct measured *ret, struct err *e)
{
    struct binder b = {.checkpoint = s->checkpoint,
                       .config = c,
                       .sizes = p->sizes,
                       .placement = c->backend->apart ? &p->placement : NULL,
                       .scratch = s->arena,
                       .e = e};
    struct model_ends ends;
    struct vision_weights vision_weights;
    const struct bind_targets nowhere = {.ends = &ends, .vision = &vision_weights};
    b.found = ARENA_ARRAY(s->arena, bool, checkpoint_count(s->checkpoint));
    if (!b.found)
        return err_set(e, -ENOMEM, "no memory left for a table of %u tensors",
                       checkpoint_count(s->checkpoint));
    if (p->sizes)
        *p->sizes = (struct placement_sizes){.layers = c->layers};
    int r = binder_init(&b);
    if (r == 0)
        r = measure_bind(&b, &nowhere, &ret->text_mark);
    for (uint32_t i = 0; p->sizes && i < MAX_OF(c->shards.count, 1u); i++)
        p->sizes->rest_bytes += i > 0 ? b.places[i].used : b.used;
    if (p->sizes)
        p->sizes->rest_bytes += b.other.used;
    b.sizes = NULL;
    if (r == 0)
        r = unread_check(&b, e);
    b.found = NULL;
    if (r == 0)
        ret->text = b;
    return r;
}

bool measure_sees(const struct config *c, const struct checkpoint *checkpoint)
{
    const struct vision_family *f = c->vision_family;
    return f && (f->everywhere || c->backend->all_encoders) && vision_exists(f, checkpoint);
}

/* Another form of a known encoder does not keep the text from being served. */
static int read_vision(struct config *c, struct model_files *files, const struct model_parts *p,
                       struct err *e)
{
    const struct vision_limits limits = {p->image_pixels_max, p->image_tokens};
    int r = vision_config_load(files, c, &limits, &c->vision, e);
    if (r != -ENOTSUP || !e)
        return r;
    const struct err why = *e;
    return err_set(e, r, "%s; --max-image-pixels 0 serves the text alone", why.text);
}

static bool has_limits(const struct config *c)
{
    for (uint32_t i = 0; i < c->layers; i++) {
        if (c->layer[i].mlp_limit > 0 || c->layer[i].expert_limit > 0)
            return true;
    }
    return false;
}

/* The part of the model that the CPU alone computes; NULL: none. */
static const char *cpu_part(const struct config *c)
{
    return c->decay_channels                   ? "the layers of Kimi delta attention"
           : c->activation == ACTIVATION_XIELU ? "the MLPs"
           : has_limits(c)                     ? "activations between bounds"
                                               : NULL;
}

/* The layers of a device follow each other, and those of the next device follow them. A layer that reads
 * another one's keys and values is where they are. */
static int check_shards(const struct config *c, struct err *e)
{
    const struct model_shards *s = &c->shards;
    ASSERT(s->count <= SHARDS_MAX);
    if (s->count > 1 && !c->backend->shards)
        return err_set(e, -ENOTSUP, "a model on %s is not spread over several devices", c->backend->name);
    for (uint32_t i = 0, before = 0; s->count > 1 && i < c->layers; before = s->layer[i++]) {
        const uint32_t from = c->layer[i].kv_from;
        ASSERT(s->layer[i] < s->count);
        if (s->layer[i] != before && s->layer[i] != before + 1)
            return err_set(e, -ENOTSUP, "the layers of a device must follow each other: layer %u does not",
                           i);
        if (from != NONE && s->layer[i] != s->layer[from])
            return err_set(e, -ENOTSUP,
                           "layers %u and %u cannot be on two devices: one reads the other's keys and values",
                           from, i);
    }
    ASSERT(s->count <= 1 || s->layer[c->layers - 1] == s->count - 1);
    return 0;
}

/* Which requested parts the checkpoint has. */
static int want_parts(struct config *c, const struct source *s, struct model_files *files,
                      const struct model_parts *p, struct err *e)
{
    c->backend = p->backend ? p->backend : &backend_cpu;
    c->compute = p->compute != COMPUTE_AUTO ? p->compute
                 : c->backend->integers     ? COMPUTE_INT16
                 : c->backend->bf16         ? COMPUTE_BF16
                                            : COMPUTE_F32;
    c->kv_form = p->kv_form;
    c->quant = p->quant;
    c->drafts_max = p->drafts_max;
    c->page_beside = p->page_beside;
    c->page_stride = p->page_stride;
    c->shards = p->shards;
    if (c->compute == COMPUTE_BF16 && !c->backend->bf16)
        return err_set(e, -ENOTSUP, "compute mode bf16 is not supported on %s; f32 is", c->backend->name);
    if (c->compute == COMPUTE_FP8 && !c->backend->fp8)
        return err_set(e, -ENOTSUP, "compute mode fp8 belongs to GPUs; it is not supported on %s",
                       c->backend->name);
    if ((c->compute == COMPUTE_INT16 || c->compute == COMPUTE_INT8) && !c->backend->integers)
        return err_set(e, -ENOTSUP, "compute mode %s belongs to the CPU; %s devices compute in bf16 and f32",
                       compute_mode_name(c->compute), c->backend->name);
    enum kv_form own = config_own_kv_form(c);
    if (c->kv_form == KV_AUTO)
        c->kv_form = own;
    if (c->kv_form == KV_BF16 && c->kv_form != own && !c->backend->integers)
        return err_set(e, -ENOTSUP,
                       "keys and values in bf16 need compute mode bf16 on %s devices; with %s they have f32, "
                       "int8 and fp8",
                       c->backend->name, compute_mode_name(c->compute));
    if (c->kv_form == KV_INT4 && !c->backend->integers)
        return err_set(
            e, -ENOTSUP,
            "keys and values in int4 belong to the CPU; on %s devices they have f32, int8 and fp8, "
            "and bf16 with compute mode bf16",
            c->backend->name);
    int r = check_shards(c, e);
    if (r < 0)
        return r;
    const char *part = cpu_part(c);
    if (part && !c->backend->integers)
        return err_set(e, -ENOTSUP, "%s of %s are not computed on %s", part, c->family_name,
                       c->backend->name);
    c->draft_vocab = p->mtp ? draft_vocab_size(p->draft_vocab, c->vocab) : 0;
    if (!p->vision || !measure_sees(c, s->checkpoint))
        return 0;
    r = read_vision(c, files, p, e);
    for (uint32_t i = 0; r == 0 && i < MIN_OF(c->vision.deepstack_count, c->layers); i++)
        if (c->shards.layer[i] > 0)
            return err_set(e, -ENOTSUP,
                           "layer %u reads the features of images, and must be on the first device", i);
    return r;
}

static int measure_head(struct config *c, struct model_files *files, struct binder *b, struct bind_mark *head)
{
    struct mtp_weights weights;
    struct draft_vocab draft_vocab;
    if (c->family->mtp == MTP_NONE)
        return err_set(b->e, -ENOTSUP, "the heads of %s are not computed", c->family_name);
    if (c->drafts_max == 0)
        return err_set(b->e, -ENOTSUP, "pages and states have no room for drafts");
    if (c->recurrent_count == 0 && !c->backend->page_hidden)
        return err_set(b->e, -ENOTSUP, "%s devices compute the heads of models with recurrent layers alone",
                       c->backend->name);
    int r = mtp_bind_init(b, files);
    if (r == 0)
        r = mtp_bind(b, &weights);
    *head = (struct bind_mark){b->used, b->digest};
    return r < 0 ? r : draft_vocab_bind(b, NULL, NULL, &draft_vocab);
}

/* The head of another checkpoint, in place of the model's own. */
static int measure_eagle(struct config *c, const char *dir, struct source *s, struct binder *b,
                         struct bind_mark *head)
{
    struct mtp_weights weights;
    struct eagle_weights eagle;
    struct err *e = b->e;
    ASSERT(s->tables);
    if (!c->backend->page_hidden)
        return err_set(e, -ENOTSUP, "EAGLE-3 heads are computed on the CPU alone");
    int r = model_files_open(dir, &s->eagle_files, e);
    if (r == 0)
        r = checkpoint_open(s->arena, s->eagle_files, "", s->account, &s->eagle_checkpoint, e);
    if (r == 0)
        r = eagle_read(s->tables, s->eagle_files, c, &c->eagle, e);
    if (r < 0)
        return r;
    *b = (struct binder){.checkpoint = s->eagle_checkpoint,
                         .config = &c->eagle->config,
                         .scratch = s->arena,
                         .e = e,
                         .sums = b->sums,
                         .fast = b->fast,
                         .floats = b->floats};
    c->draft_vocab = 0;
    r = eagle_bind(b, c->eagle, &weights, &eagle);
    *head = (struct bind_mark){b->used, b->digest};
    return r;
}

static int find_vector_head(const struct config *c, struct model_files *files, const struct binder *text,
                            struct source *s, struct err *e)
{
    struct pooling_config pooling;
    int r = pooling_config_load(files, c->hidden, &pooling, e);
    return r < 0 ? r
                 : vector_head_find(s->arena, files, &pooling, c, s->checkpoint, text->prefix, s->account,
                                    &s->vector_head, e);
}

/* Takes over the mode that binding found: f32 if no matrix takes the requested one. */
static void take_mode(struct config *c, const struct binder *b)
{
    c->sums = b->sums;
    c->shown = b->fast ? c->compute : COMPUTE_F32;
}

/* With COMPUTE_AUTO a model none of whose matrices computes in whole numbers is measured again in bf16, where
 * the machine is faster in that. Weights of F16 would lose bits. */
static int measure_text_auto(struct config *c, const struct model_parts *p, const struct source *s,
                             struct measured *ret, struct err *e)
{
    int r = measure_text(c, p, s, ret, e);
    const bool again = r == 0 && p->compute == COMPUTE_AUTO && c->compute == COMPUTE_INT16 &&
                       !ret->text.fast && !ret->text.halves && c->backend->prefers_bf16 &&
                       c->backend->prefers_bf16();
    if (!again)
        return r;
    c->compute = COMPUTE_BF16;
    return measure_text(c, p, s, ret, e);
}

/* Wishes that change nothing are errors. */
static int check_floats(const struct binder *b, struct err *e)
{
    if (b->config->compute != COMPUTE_FP8 || b->floats)
        return 0;
    return err_set(
        e, -ENOTSUP,
        "compute mode fp8 is for FP8 weights with rows of 128 values or a multiple, which the model "
        "does not have; bf16 computes it");
}
static int check_quant(const struct binder *b, struct err *e)
{
    char form[WEIGHT_FORMS_BYTES];
    if (b->config->quant == 0 || b->quantised > 0)
        return 0;
    weight_forms_text(&b->forms, form);
    return err_set(e, -ENOTSUP,
                   "--quant %s quantises matrices of floats with rows of 32 or 64 values or a multiple; the "
                   "model's are %s, and remain as they are without --quant",
                   quantise_name(b->config->quant), form);
}

int measure_model(struct config *c, const struct model_parts *parts, struct model_files *files,
                  struct source *s, struct measured *ret, struct err *e)
{
    *ret = (struct measured){0};
    int r = want_parts(c, s, files, parts, e);
    if (r == 0)
        r = measure_text_auto(c, parts, s, ret, e);
    if (r == 0)
        r = check_quant(&ret->text, e);
    if (r == 0)
        r = check_floats(&ret->text, e);
    if (r == 0)
        r = find_vector_head(c, files, &ret->text, s, e);
    if (r == 0)
        take_mode(c, &ret->text);
    c->experts_apart = ret->text.other.used > 0;
    c->experts_sums = ret->text.other.sums;
    if (r < 0 || !parts->mtp)
        return r;
    ret->mtp = ret->text;
    ret->mtp.placement = NULL;
    ret->mtp.other = (struct binder_memory){0};
    ret->mtp.e = &ret->mtp_absent;
    r = parts->eagle ? measure_eagle(c, parts->eagle, s, &ret->mtp, &ret->head_mark)
                     : measure_head(c, files, &ret->mtp, &ret->head_mark);
    if (r < 0 && parts->eagle)
        return err_set(e, r, "the EAGLE-3 head at %s: %s", parts->eagle, ret->mtp_absent.text);
    c->mtp_count = r == 0;
    if (r == 0)
        take_mode(c, &ret->mtp);
    return r == -ENOMEM ? err_set(e, r, "%s", ret->mtp_absent.text) : 0;
}

int measure_check_parts(const struct model_parts *p, struct err *e)
{
    return p->drafts_max <= MODEL_DRAFTS_MAX ? 0
                                             : err_set(e, -EINVAL, "%u tokens drafted ahead are more than %u",
                                                       p->drafts_max, MODEL_DRAFTS_MAX);
}
