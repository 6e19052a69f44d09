/* model.c - probing, loading, and the steps of a model.
 *
 * A load measures first (model_probe is the measuring alone), reserves everything, then packs. Everything
 * that model_forward touches exists when model_load returns. */
#include "model/model.h"

#include "model/blocks/blocks.h"
#include "model/blocks/forward.h"
#include "model/blocks/layer.h"
#include "model/blocks/mtp.h"
#include "model/blocks/step.h"
#include "model/draft_vocab.h"
#include "model/family/family.h"
#include "model/load/packed.h"
#include "model/load/vision_weights.h"
#include "model/load/weight_memory.h"
#include "model/measure.h"
#include "model/vector_head.h"
#include "model/vision_encoder.h"

#include "base/check.h"
#include "base/none.h"
#include "compute/backend.h"
#include "compute/device.h"
#include "memory/accounts.h"
#include "memory/domain.h"
#include "weights/checkpoint.h"
#include "weights/model_files.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* Configuration and layers: 1024 layers, a quantisation entry for each of some 100000 modules. */
#define MODEL_TABLES_MAX       ((size_t)64 << 20)
#define QUANTIZED_MODULE_BYTES 512   /* entry, name, place in the table */
#define TABLES_FIXED_BYTES     16384 /* the arena's own, and what reading the file takes */
#define LAYOUT_BYTES           (sizeof(struct kv_layer) + sizeof(struct recurrent_layer)) /* a layer\'s */
#define TOKENS_MAX_LIMIT       (1u << 20)

/* Memory of a device: weights and workspace. */
struct shard {
    struct device *device;
    struct account *weights_account, *workspace_account, *recorded_account;
    struct charge recorded;
    struct arena *workspace;
    struct weight_memory weights, range; /* range: instead of `workspace`, where the backend wants ranges */
};

struct model {
    struct device *device;
    struct model_shape shape;
    struct config config;
    struct shard shards[SHARDS_MAX]; /* [shape.shard_count] */
    struct account *tables_account, *mtp_account;
    struct account *experts_account; /* experts in the machine's memory; NULL: none, or uncounted */
    struct account *host_account;    /* the host's part of the workspace; NULL: the first shard's */
    /* NULL here and in a shard: the backend records no steps there, or they are uncounted. */
    struct account *recorded_host_account;
    struct charge recorded_host;           /* to it */
    struct arena *tables, *host_workspace; /* host_workspace: NULL: the first shard's */
    struct packed packed;                  /* while it loads */
    struct weight_memory mtp_memory;
    struct weight_memory experts;      /* experts in the machine's memory */
    struct weight_memory draft_memory; /* the draft vocabulary where the head is mapped */
    struct layer *layers;              /* [config.layers] */
    struct model_ends ends;
    struct mtp mtp; /* with shape.mtp */
    struct draft_vocab draft_vocab;
    struct vector_head vector_head;
    struct step *step;
    /* Zeros without a vision encoder. */
    struct vision_weights vision_weights;
    struct vision_block *vision_blocks; /* [config.vision.depth] */
    struct vision_encoder encoder;
};

const char *model_kv_dtype(const struct model_shape *s)
{
    return kv_form_name(s->kv_form);
}

const char *model_kv_smaller(const struct model_shape *s)
{
    return s->kv_smaller == KV_AUTO ? NULL : kv_form_name(s->kv_smaller);
}

/* After measuring: whether there is a head is known. */
static int lay_out(struct arena *tables, struct config *c, struct err *e)
{
    int r = config_lay_out(tables, c);
    return r == 0 ? 0 : err_set(e, r, "no memory left for the layouts of %u layers", c->layers);
}

static uint64_t in_grains(uint64_t bytes)
{
    return ROUND_UP(bytes, (uint64_t)65536);
}

/* Layers, their places in pages and states, and config.json's entries for single modules (a path each); in
 * whole grains of an arena. */
static uint64_t tables_bytes(const struct config *c)
{
    uint64_t bytes = c->layers * (sizeof(struct layer) + sizeof(struct layer_config) + LAYOUT_BYTES) +
                     c->vision.depth * sizeof(struct vision_block) +
                     c->quantization.by_path.count * (uint64_t)QUANTIZED_MODULE_BYTES +
                     (c->mtp_count ? draft_vocab_tables_bytes(c->draft_vocab, c->vocab) : 0) +
                     (c->eagle ? sizeof(*c->eagle) + c->eagle->vocab * sizeof(uint32_t) + 65536 : 0);
    return in_grains(bytes + TABLES_FIXED_BYTES);
}

/* Weights that are mapped pass no stage; those of an EAGLE-3 head do. */
static uint64_t stage_bytes(const struct config *c, const struct packed *packed,
                            const struct measured *measured)
{
    return packed->bundle && !c->eagle ? 0 : measure_staging_bytes(measured);
}

static void fill_shape(const struct config *c, const struct source *s, const struct packed *packed,
                       const struct measured *measured, struct model_shape *ret)
{
    const struct binder *b = &measured->text;
    const uint64_t head = c->mtp_count && !c->eagle ? measured->head_mark.used : 0,
                   mapped = packed->bundle ? head : 0;
    struct model_shape shape = {
        .vocab = c->vocab,
        .layers = c->layers,
        .hidden = c->hidden,
        .context_max = c->context_max,
        .both_ways = c->both_ways,
        .encoder = c->family->encoder,
        .token_types = c->token_types,
        .longrope = c->ropes[0].type != ROPE_LONG ? NULL
                    : c->ropes[0].beyond          ? "long"
                                                  : "short",
        .weight_bytes = weight_memory_round(b->used) + weight_memory_round(mapped),
        .experts_bytes = weight_memory_round(b->other.used),
        .mapped = packed->bundle != NULL,
        .checkpoint_bytes = packed->bundle ? packed->bundle->at.bytes : checkpoint_bytes(s->checkpoint),
        .loading_bytes = arena_committed_bytes(s->arena) + packers_bytes(stage_bytes(c, packed, measured)),
        .tables_bytes = tables_bytes(c) + in_grains(vector_head_bytes(&s->vector_head.shape)),
        .vector_width = vector_head_width(&s->vector_head.shape, c->hidden),
        .vector_room = vector_head_width_max(&s->vector_head.shape, c->hidden),
        .labels = s->vector_head.shape.labels,
        .active_weight_bytes = b->active.bytes,
        .active_checkpoint_bytes = b->active.source_bytes,
        .token_products = b->active.products,
        .routed = c->use_experts && c->experts > 0,
        .parameters = b->parameters,
        .workspace = step_cost(c),
        .apart = c->backend->apart,
        .samples = c->backend->samples,
        .ranges = c->backend->ranges,
        .text_alone = c->text_alone || (c->vision_family && !measure_sees(c, s->checkpoint) &&
                                        vision_exists(c->vision_family, s->checkpoint)),
        .compute = c->shown,
        .quant = c->quant,
        .has_vision = measure_sees(c, s->checkpoint),
        .has_mtp = mtp_exists(s->checkpoint, c),
        .mtp = c->mtp_count > 0,
        .mtp_weight_bytes = c->mtp_count ? weight_memory_round(measured->mtp.used - mapped) : 0,
        .eagle = c->eagle != NULL,
        .mtp_mapped = mapped > 0,
    };
    config_fill_layouts(c, &shape);
    for (uint32_t i = 1; i < shape.shard_count; i++)
        shape.beside[i - 1].weight_bytes = weight_memory_round(MAX_OF(b->places[i].used, (uint64_t)1));
    weight_forms_text(&b->forms, shape.form);
    if (!shape.mtp)
        snprintf(shape.mtp_absent, sizeof(shape.mtp_absent), "%s", measured->mtp_absent.text);
    memcpy(shape.family, c->family_name, sizeof(shape.family));
    snprintf(shape.unknown_keys, sizeof(shape.unknown_keys), "%s%s%s", c->unknown_keys,
             c->unknown_keys[0] && c->vision.unknown_keys[0] ? ", " : "", c->vision.unknown_keys);
    if (c->vision.shape.present) {
        shape.vision = c->vision.shape;
        shape.vision.weight_bytes = b->vision_bytes;
        vision_encoder_cost(c, &shape.vision);
    }
    *ret = shape;
}

int model_probe(struct model_files *files, const struct model_parts *parts, struct model_shape *ret,
                struct err *e)
{
    struct model_parts wanted = parts ? *parts : (struct model_parts){0};
    struct arena *tables = NULL;
    struct source source = {0};
    struct packed packed = {.bundle = NULL};
    struct config config;
    struct measured measured;
    int r = measure_check_parts(&wanted, e);
    if (r < 0)
        return r;
    r = measure_arena(NULL, MODEL_TABLES_MAX, &tables);
    if (r < 0)
        return err_set(e, r, "no memory left to read %s", model_files_path(files));
    r = packed_open(files, &packed, e);
    if (r == 0)
        r = packed_set_parts(&packed, &wanted, e);
    if (r == 0)
        r = config_load(tables, files, &config, e);
    if (r == 0)
        config_serve(&config, 0);
    if (r == 0)
        r = measure_source_open(&source, files, NULL, e);
    source.tables = tables;
    if (r == 0)
        r = measure_model(&config, &wanted, files, &source, &measured, e);
    if (r == 0)
        r = packed_check(&packed, &config, &measured, e);
    if (r == 0)
        r = lay_out(tables, &config, e);
    if (r == 0)
        fill_shape(&config, &source, &packed, &measured, ret);
    measure_source_close(&source);
    arena_free(tables);
    return r;
}

struct model_workspace model_workspace_bytes(const struct model_shape *s, uint32_t tokens_max,
                                             uint32_t seqs_max, uint32_t workers)
{
    const struct compute_bytes *const parts[] = {&s->workspace.device, &s->workspace.host};
    uint64_t bytes[COUNT_OF(parts)];
    for (size_t i = 0; i < COUNT_OF(parts); i++)
        bytes[i] = parts[i]->fixed + parts[i]->token * tokens_max + parts[i]->seq * seqs_max +
                   parts[i]->worker * workers;
    /* An arena's own header, and whole grains; of ranges, units. */
    uint64_t device_bytes = s->ranges ? weight_memory_round(bytes[0]) : in_grains(bytes[0] + 4096);
    return s->apart ? (struct model_workspace){device_bytes, in_grains(bytes[1] + 4096)}
                    : (struct model_workspace){.device_bytes = in_grains(bytes[0] + bytes[1] + 4096)};
}

/* ---- loading ---- */

static uint32_t shards_of(const struct model_opts *o)
{
    return MAX_OF(o->parts.shards.count, 1u);
}

static int check_opts(const struct model_opts *o, struct err *e)
{
    if (o->tokens_max == 0 || o->tokens_max > TOKENS_MAX_LIMIT || o->seqs_max == 0 ||
        o->seqs_max > o->tokens_max)
        return err_set(e, -EINVAL,
                       "a step of %u tokens in %u sequences: tokens must be 1..%u, sequences 1..tokens",
                       o->tokens_max, o->seqs_max, TOKENS_MAX_LIMIT);
    if (!o->device)
        return err_set(e, -EINVAL, "a device must be given");
    for (uint32_t i = 1; i < shards_of(o); i++)
        if (!o->beside[i - 1].device || o->beside[i - 1].device->backend != o->device->backend)
            return err_set(e, -EINVAL, "a model is spread over devices of one kind");
    return measure_check_parts(&o->parts, e);
}

static struct account *device_parent(const struct model_opts *o)
{
    return o->device_parent ? o->device_parent : o->parent;
}

static struct account *parent_on(const struct model_opts *o, uint32_t shard)
{
    return shard > 0 ? o->beside[shard - 1].parent : device_parent(o);
}

/* Mapped weights are pages of a file. */
static int open_shard(struct shard *s, struct account *parent, bool mapped)
{
    int r = mapped && parent ? account_open(parent, accounts_row(ACCOUNT_WEIGHTS)->name, ACCOUNT_FILE,
                                            ACCOUNT_NO_LIMIT, &s->weights_account)
                             : measure_account(parent, ACCOUNT_WEIGHTS, &s->weights_account);
    return r == 0 ? measure_account(parent, ACCOUNT_WORKSPACE, &s->workspace_account) : r;
}

static int open_accounts(struct model *m, const struct model_opts *o, bool mapped)
{
    struct account *parent = o->parent, *on_device = device_parent(o);
    int r = 0;
    for (uint32_t i = 0; i < shards_of(o) && r == 0; i++) {
        m->shards[i].device = i > 0 ? o->beside[i - 1].device : o->device;
        r = open_shard(&m->shards[i], parent_on(o, i), mapped);
    }
    if (r == 0 && on_device != parent)
        r = measure_account(parent, ACCOUNT_WORKSPACE, &m->host_account);
    if (r == 0)
        r = measure_account(on_device, o->parts.eagle ? ACCOUNT_DRAFT : ACCOUNT_MTP, &m->mtp_account);
    return r == 0 ? measure_account(parent, ACCOUNT_TABLES, &m->tables_account) : r;
}

static int create_planned_arena(struct account *account, uint64_t bytes, struct arena **ret)
{
    if (account)
        account_set_planned(account, bytes);
    return measure_arena(account, bytes, ret);
}

static int create_range(struct shard *s, uint64_t bytes)
{
    if (s->workspace_account)
        account_set_planned(s->workspace_account, bytes);
    int r = weight_memory_init(&s->range, s->device->domain, s->workspace_account, bytes);
    return r == 0 ? weight_memory_commit(&s->range, (size_t)bytes, NULL) : r;
}

/* Records come with the steps: until then the bytes are guaranteed. */
static int open_recorded(struct account *parent, uint64_t bytes, struct account **ret, struct charge *charge)
{
    int r = bytes > 0 ? measure_account(parent, ACCOUNT_RECORDED_STEPS, ret) : 0;
    if (r < 0 || !*ret)
        return r;
    account_set_planned(*ret, bytes);
    account_set_limit(*ret, bytes);
    *charge = account_charge(*ret);
    return account_set_floor(*ret, bytes);
}

static int create_on(const struct model *m, struct shard *s, struct account *parent, uint64_t bytes,
                     struct step_device *ret)
{
    int r = m->shape.ranges ? create_range(s, bytes)
                            : create_planned_arena(s->workspace_account, bytes, &s->workspace);
    if (r == 0)
        r = open_recorded(parent, m->shape.workspace.recorded_bytes, &s->recorded_account, &s->recorded);
    *ret = (struct step_device){s->device, s->workspace, s->range.base,
                                s->recorded_account ? &s->recorded : NULL};
    return r;
}

static int create_workspace(struct model *m, const struct model_opts *opts, struct err *e)
{
    const struct model_workspace w =
        model_workspace_bytes(&m->shape, opts->tokens_max, opts->seqs_max,
                              m->config.experts_apart ? opts->cpu->workers : opts->device->workers);
    struct account *host = m->host_account ? m->host_account : m->shards[0].workspace_account;
    struct step_memory memory = {.host = NULL};
    int r = 0;
    for (uint32_t i = 0; i < m->shape.shard_count && r == 0; i++)
        r = create_on(m, &m->shards[i], parent_on(opts, i), w.device_bytes, &memory.on[i]);
    if (r == 0 && w.host_bytes > 0)
        r = create_planned_arena(host, w.host_bytes, &m->host_workspace);
    if (r == 0)
        r = open_recorded(opts->parent, m->shape.workspace.recorded_host_bytes, &m->recorded_host_account,
                          &m->recorded_host);
    memory.host = m->host_workspace ? m->host_workspace : m->shards[0].workspace;
    memory.recorded_host = m->recorded_host_account ? &m->recorded_host : NULL;
    if (r == 0)
        r = step_create(&memory, &m->config, opts, &m->step);
    return r == 0 ? 0
                  : err_set(e, r, "%llu bytes of workspace are more than is left",
                            (ull)(m->shape.shard_count * w.device_bytes + w.host_bytes));
}

/* Address space only; memory comes with images. */
static int create_encoder(struct model *m, const struct model_opts *opts, struct err *e)
{
    if (!m->config.vision.shape.present)
        return 0;
    int r = vision_encoder_init(&m->encoder, &m->config, &m->vision_weights, m->step->compute,
                                opts->device->domain, device_parent(opts));
    return r == 0 ? 0 : err_set(e, r, "no memory left to encode images");
}

/* Reserves the memory that `measured` counted, and turns `measured` into a binder that packs into it. */
static int prepare_packing(struct binder *b, struct packers *packers, const struct model_opts *opts,
                           struct account *account, struct weight_memory *memory, struct err *e)
{
    uint64_t bytes = weight_memory_round(b->used);
    b->memory = memory;
    b->packers = packers;
    b->device = opts->device;
    b->progress = opts->progress;
    b->progress_arg = opts->progress_arg;
    b->e = e;
    if (account)
        account_set_planned(account, bytes);
    int r = weight_memory_init(memory, opts->device->domain, account, b->used);
    b->used = b->digest = b->source_bytes = 0;
    return r == 0 ? 0 : err_set(e, r, "%llu bytes of weights are more than is left", (ull)bytes);
}

/* As `prepare_packing()`, but of the experts in the machine's memory, after it. */
static int prepare_experts(struct model *m, struct binder *b, const struct model_opts *opts, struct err *e)
{
    struct account *account = NULL;
    if (b->other.used == 0)
        return 0;
    int r = measure_account(opts->parent, ACCOUNT_EXPERTS, &account);
    m->experts_account = account;
    if (r == 0 && account)
        account_set_planned(account, m->shape.experts_bytes);
    if (r == 0)
        r = weight_memory_init(&m->experts, domain_machine(), account, b->other.used);
    b->other = (struct binder_memory){.memory = &m->experts, .device = opts->cpu};
    return r == 0 ? 0
                  : err_set(e, r, "%llu bytes of experts are more than is left", (ull)m->shape.experts_bytes);
}

/* The memory of the other devices, in the places of the binder. */
static int prepare_beside(struct model *m, struct binder *b, struct err *e)
{
    for (uint32_t i = 1; i < m->shape.shard_count; i++) {
        struct shard *s = &m->shards[i];
        const uint64_t bytes = m->shape.beside[i - 1].weight_bytes;
        if (s->weights_account)
            account_set_planned(s->weights_account, bytes);
        int r = weight_memory_init(&s->weights, s->device->domain, s->weights_account, bytes);
        if (r < 0)
            return err_set(e, r, "%llu bytes of weights are more than is left", (ull)bytes);
        b->places[i] = (struct binder_shard){.memory = &s->weights, .device = s->device};
    }
    return 0;
}

/* Maps `used` bytes of a region of the packed file: the binder finds places alone. */
static int map_region(struct model *m, const char *region, uint64_t used, const struct packed_load *load,
                      struct weight_memory *memory, struct binder *b)
{
    int r = packed_map(&m->packed, region, used, load, m->shards[0].weights_account, memory, b->e);
    b->memory = memory;
    b->ready = used;
    b->used = b->digest = b->source_bytes = 0;
    return r;
}

static struct packed_load packed_load_of(const struct measured *measured, struct source *s,
                                         const struct model_opts *opts)
{
    return (struct packed_load){.packers = &s->packers,
                                .progress = opts->progress,
                                .arg = opts->progress_arg,
                                .total = measured->text.used + measured->head_mark.used};
}

static int map_head(struct model *m, struct binder *b, const struct measured *measured, struct source *s,
                    const struct model_opts *opts, struct err *e)
{
    struct packed_load load = packed_load_of(measured, s, opts);
    load.before = measured->text.used;
    b->e = e;
    return map_region(m, PACKED_HEAD, measured->head_mark.used, &load, &m->mtp_memory, b);
}

/* The draft vocabulary changes, and a mapped head is only read: then its rows lie in memory of their own. */
static int bind_draft_vocab(struct model *m, struct binder *b, const struct measured *measured,
                            const struct model_opts *opts)
{
    const uint64_t bytes = measured->mtp.used - measured->head_mark.used;
    struct binder apart = *b;
    if (m->packed.bundle && bytes > 0) {
        if (m->mtp_account)
            account_set_planned(m->mtp_account, weight_memory_round(bytes));
        int r = weight_memory_init(&m->draft_memory, opts->device->domain, m->mtp_account, bytes);
        if (r < 0)
            return err_set(b->e, r, "%llu bytes of weights are more than is left", (ull)bytes);
        apart.memory = &m->draft_memory;
        apart.used = apart.ready = 0;
    }
    int r = draft_vocab_bind(&apart, &m->ends.head.parts[0], m->tables, &m->draft_vocab);
    b->used += m->packed.bundle ? bytes : apart.used - b->used;
    return r;
}

static int pack_head(struct model *m, const struct measured *measured, struct source *s,
                     const struct model_opts *opts, struct err *e)
{
    struct binder b = measured->mtp;
    int r = m->packed.bundle ? map_head(m, &b, measured, s, opts, e)
                             : prepare_packing(&b, &s->packers, opts, m->mtp_account, &m->mtp_memory, e);
    b.packed_bytes = measured->text.source_bytes;
    b.source_bytes_total = b.packed_bytes + measured->mtp.source_bytes;
    m->mtp = (struct mtp){.embedding = &m->ends.embedding,
                          .head = &m->ends.head,
                          .final_norm = m->ends.final_norm.weight,
                          .draft_vocab = &m->draft_vocab};
    if (r == 0)
        r = mtp_bind(&b, &m->mtp.weights);
    if (r == 0)
        r = bind_draft_vocab(m, &b, measured, opts);
    ASSERT(r < 0 || (b.used == measured->mtp.used && m->ends.head.part_count == 1));
    return r;
}

static int pack_eagle(struct model *m, const struct measured *measured, struct source *s,
                      const struct model_opts *opts, struct err *e)
{
    struct binder b = measured->mtp;
    struct eagle_weights *own = &m->mtp.eagle_weights;
    int r = measure_source_turn(s, opts->device, measure_staging_bytes(measured), e);
    if (r == 0)
        r = prepare_packing(&b, &s->packers, opts, m->mtp_account, &m->mtp_memory, e);
    if (r < 0)
        return r;
    b.packed_bytes = measured->text.source_bytes;
    b.source_bytes_total = b.packed_bytes + measured->mtp.source_bytes;
    m->mtp = (struct mtp){.eagle = m->config.eagle, .draft_vocab = &m->draft_vocab};
    r = eagle_bind(&b, m->mtp.eagle, &m->mtp.weights, own);
    m->mtp.embedding = own->embedding.n > 0 ? &own->embedding : &m->ends.embedding;
    m->mtp.head = &own->head;
    ASSERT(r < 0 || (b.used == measured->mtp.used && own->head.part_count == 1));
    if (r == 0)
        r = eagle_read_ids(m->tables, s->eagle_checkpoint, m->mtp.eagle, &own->ids, e);
    return r == 0 ? checkpoint_check(s->eagle_checkpoint, e) : r;
}

static int map_weights(struct model *m, struct binder *b, const struct measured *measured, struct source *s,
                       const struct model_opts *opts, struct err *e)
{
    const struct packed_load load = packed_load_of(measured, s, opts);
    if (m->shards[0].weights_account)
        account_set_planned(m->shards[0].weights_account, m->shape.weight_bytes);
    b->e = e;
    return map_region(m, PACKED_WEIGHTS, b->used, &load, &m->shards[0].weights, b);
}

static int pack(struct model *m, const struct measured *measured, struct source *s,
                const struct model_opts *opts, struct err *e)
{
    struct binder b = measured->text;
    struct shard *first = &m->shards[0];
    int r = m->packed.bundle
                ? map_weights(m, &b, measured, s, opts, e)
                : prepare_packing(&b, &s->packers, opts, first->weights_account, &first->weights, e);
    if (r == 0)
        r = prepare_beside(m, &b, e);
    if (r == 0)
        r = prepare_experts(m, &b, opts, e);
    b.source_bytes_total = measured->text.source_bytes + (m->shape.mtp ? measured->mtp.source_bytes : 0);
    if (r < 0)
        return r;
    const struct bind_targets to = {&m->ends, m->layers, m->vision_blocks, &m->vision_weights};
    struct bind_mark text;
    r = measure_bind(&b, &to, &text);
    ASSERT(r < 0 || (b.used == measured->text.used && b.digest == measured->text.digest));
    ASSERT(r < 0 || b.other.used == measured->text.other.used);
    if (r < 0 || !m->shape.mtp)
        return r;
    return (m->shape.eagle ? pack_eagle : pack_head)(m, measured, s, opts, e);
}

static int load(struct model *m, struct source *s, struct model_files *files, struct model_opts *opts,
                struct err *e)
{
    struct measured measured;
    int r = packed_open(files, &m->packed, e);
    if (r == 0)
        r = packed_set_parts(&m->packed, &opts->parts, e);
    if (r == 0)
        r = packed_check_files(&m->packed, e);
    if (r < 0)
        return r;
    r = open_accounts(m, opts, m->packed.bundle != NULL);
    if (r == 0)
        r = measure_arena(m->tables_account, MODEL_TABLES_MAX, &m->tables);
    if (r < 0)
        return err_set(e, r, "no memory left to load %s", model_files_path(files));
    r = config_load(m->tables, files, &m->config, e);
    if (r == 0)
        config_serve(&m->config, opts->context);
    if (r == 0)
        r = measure_source_open(s, files, opts->parent, e);
    s->tables = m->tables;
    if (r == 0)
        r = measure_model(&m->config, &opts->parts, files, s, &measured, e);
    if (r == 0)
        r = packed_check(&m->packed, &m->config, &measured, e);
    if (r == 0)
        r = lay_out(m->tables, &m->config, e);
    if (r < 0)
        return r;
    fill_shape(&m->config, s, &m->packed, &measured, &m->shape);
    m->layers = ARENA_ARRAY(m->tables, struct layer, m->config.layers);
    m->vision_blocks = ARENA_ARRAY(m->tables, struct vision_block, m->config.vision.depth);
    if (!m->layers || !m->vision_blocks)
        return err_set(e, -ENOMEM, "no memory left for a table of %u layers", m->config.layers);
    r = create_workspace(m, opts, e);
    if (r == 0)
        r = create_encoder(m, opts, e);
    if (r == 0)
        r = measure_source_begin(s, opts->device, stage_bytes(&m->config, &m->packed, &measured), e);
    if (r == 0)
        r = pack(m, &measured, s, opts, e);
    if (r == 0)
        r = vector_head_read(m->tables, &s->vector_head, &m->vector_head, e);
    return r == 0 ? checkpoint_check(s->checkpoint, e) : r;
}

int model_load(struct model_files *files, const struct model_opts *opts, struct model **ret, struct err *e)
{
    struct source source = {0};
    int r = check_opts(opts, e);
    if (r < 0)
        return r;
    struct model *m = calloc(1, sizeof(*m));
    if (!m)
        return err_set(e, -ENOMEM, "no memory left to load %s", model_files_path(files));
    m->device = opts->device;
    struct model_opts whole = *opts;
    whole.parts.backend = opts->device->backend;
    r = load(m, &source, files, &whole, e);
    measure_source_close(&source);
    if (r == -ENOMEM && e && !e->text[0])
        err_set(e, r, "no memory left to load %s", model_files_path(files));
    if (r < 0)
        model_free(m);
    else
        *ret = m;
    return r;
}

/* Fine on a zeroed struct. */
static void shard_done(struct shard *s)
{
    weight_memory_done(&s->weights);
    weight_memory_done(&s->range);
    arena_free(s->workspace);
    account_close(s->weights_account);
    account_close(s->workspace_account);
    account_close(s->recorded_account);
}

void model_free(struct model *m)
{
    if (!m)
        return;
    vision_encoder_done(&m->encoder);
    if (m->step && m->step->compute)
        compute_close(m->step->compute);
    weight_memory_done(&m->experts);
    weight_memory_done(&m->mtp_memory);
    weight_memory_done(&m->draft_memory);
    arena_free(m->host_workspace);
    for (uint32_t i = 0; i < SHARDS_MAX; i++)
        shard_done(&m->shards[i]);
    arena_free(m->tables);
    account_close(m->experts_account);
    account_close(m->host_account);
    account_close(m->recorded_host_account);
    account_close(m->tables_account);
    account_close(m->mtp_account);
    free(m);
}

const struct model_shape *model_shape(const struct model *m)
{
    return &m->shape;
}

const struct domain *model_domain(const struct model *m)
{
    return m->device->domain;
}

/* ---- forward ---- */

static void check_rows(const struct model *m, const struct model_step *in)
{
    for (uint32_t r = 0; r < in->seq_count; r++) {
        const struct model_seq *seq = &in->seqs[r];
        ASSERT(m->config.recurrent_count == 0 || (!dev_is_null(in->states) && seq->state_out != NONE));
        for (uint32_t i = 0; i < seq->token_count; i++)
            ASSERT(seq->tokens[i] < m->config.vocab);
    }
}

static void begin_batch(struct model *m, const struct model_step *in)
{
    struct step *s = m->step;
    step_fill(s, in);
    if (m->shape.mtp)
        mtp_see(&m->mtp, in);
    step_begin(s);
    if (m->shape.mtp)
        mtp_copy_rows(s, &m->mtp);
}

static uint32_t key_of(const struct step *s)
{
    return (s->batch.logit_count > 0 ? STEP_KEY_LOGITS : 0u) |
           (s->batch.image_count > 0 ? STEP_KEY_IMAGES : 0u) |
           (s->batch.value_count > 0 ? STEP_KEY_VALUES : 0u);
}

void model_step_begin(struct model *m, const struct model_step *in)
{
    struct step *s = m->step;
    check_rows(m, in);
    begin_batch(m, in);
    const struct forward f = {&m->config, m->layers, &m->ends, m->shape.mtp ? &m->mtp : NULL};
    if (!compute_replay(s->compute, key_of(s)) && !forward_pass(s, &f, in))
        s->phase = STEP_CANCELED;
}

int model_step_end(struct model *m)
{
    int r = step_end(m->step);
    if (r == 0)
        r = weight_memory_check(&m->shards[0].weights);
    return r == 0 ? weight_memory_check(&m->mtp_memory) : r;
}

int model_row(struct model *m, uint32_t row)
{
    return step_row(m->step, row);
}

void model_finish_vector(const struct model *m, float *vector)
{
    vector_head_apply(&m->vector_head, vector);
}

void model_draft_begin(struct model *m, const struct model_draft *d)
{
    ASSERT(m->shape.mtp);
    mtp_draft_begin(m->step, &m->mtp, d);
}

int model_draft_end(struct model *m)
{
    return mtp_draft_end(m->step, &m->mtp);
}

/* ---- images ---- */

uint32_t model_image_tokens_max(const struct model_vision *v)
{
    const uint32_t edge = v->patch * v->merge,
                   rows = v->marks && v->marks->row_end ? v->edge_max / edge + 1 : 0;
    return (uint32_t)(v->pixels_max / ((uint64_t)edge * edge)) + rows;
}

uint32_t model_image_parts_max(const struct model_vision *v)
{
    const struct model_tiles *t = &v->tiles;
    const uint32_t edges = t->edge > 0 ? DIV_UP(t->longest, t->edge) : 0,
                   most = MAX_OF(t->count_max, edges * edges);
    return most > 1 && t->count_max != 1 ? most + 1 : 1;
}

struct model_grid model_grid_of(const struct model_vision *v, uint32_t first, uint32_t width, uint32_t height)
{
    const uint32_t edge = v->patch * v->merge;
    return (struct model_grid){.first = first,
                               .rows = height / edge,
                               .columns = width / edge,
                               .row_ends = v->marks && v->marks->row_end,
                               .linear = v->linear,
                               .both_ways = v->both_ways,
                               .features = DEV_NULL};
}

struct vision_encoder *model_vision_encoder(struct model *m)
{
    ASSERT(m->config.vision.shape.present);
    return &m->encoder;
}
