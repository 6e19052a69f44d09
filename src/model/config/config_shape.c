/* config_shape.c - what the compute contract takes of a configuration: its numbers, the layouts of its
 * memory, and the frequencies of its rotation, rounded to f32 like the reference's. */
#include "model/blocks/blocks.h"
#include "model/config/config.h"

#include "base/none.h"
#include "compute/backend.h"
#include "compute/layout.h"
#include "kernel/kern.h"

#include <errno.h>
#include <math.h>

/* The llama3 rule: long waves are slowed by `factor`, short ones kept, those between blended. */
static double llama3(const struct rope_config *c, double inv)
{
    double wave = 2 * M_PI / inv;
    if (wave > c->original_max / c->low_freq)
        return inv / c->factor;
    if (wave < c->original_max / c->high_freq)
        return inv;
    double smooth = (c->original_max / wave - c->low_freq) / (c->high_freq - c->low_freq);
    return (1 - smooth) * inv / c->factor + smooth * inv;
}

/* The pair index whose wave turns `turns` times within the positions trained on. */
static double yarn_index(const struct rope_config *c, double turns)
{
    return c->rot * log(c->original_max / (2 * M_PI * turns)) / (2 * log(c->theta));
}

static double yarn(const struct rope_config *c, double inv, uint32_t j)
{
    double low = yarn_index(c, c->beta_fast), high = yarn_index(c, c->beta_slow);
    low = fmax(c->untruncated ? low : floor(low), 0);
    high = fmin(c->untruncated ? high : ceil(high), c->rot - 1);
    double width = high > low ? high - low : 0.001;
    double ramp = fmin(fmax((j - low) / width, 0), 1);
    return inv / c->factor * ramp + inv * (1 - ramp);
}

static double yarn_growth(const struct rope_config *c, double m)
{
    return c->factor > 1 ? 0.1 * m * log(c->factor) + 1 : 1;
}

/* Returns the factor of cos and sin. */
static double yarn_magnitude(const struct rope_config *c)
{
    if (c->attention_factor > 0)
        return c->attention_factor;
    if (c->mscale > 0 && c->mscale_all > 0)
        return yarn_growth(c, c->mscale) / yarn_growth(c, c->mscale_all);
    return yarn_growth(c, 1);
}

static double longrope_magnitude(const struct rope_config *c)
{
    if (c->mscale_short > 0)
        return c->beyond ? c->mscale_long : c->mscale_short;
    if (c->attention_factor > 0)
        return c->attention_factor;
    return c->factor > 1 ? sqrt(1 + log(c->factor) / log(c->original_max)) : 1;
}

void config_serve(struct config *c, uint32_t context)
{
    uint32_t longest = context > 0 ? context : c->context_max;
    for (uint32_t i = 0; i < c->rope_count; i++)
        c->ropes[i].beyond = longest > c->ropes[i].original_max;
}

/* Frequencies go to rows and columns in turn, as far as those have a section: T H W T H W ... T T. Older
 * models have the sections one after the other. */
static uint8_t axis_of(const struct rope_config *c, uint32_t j)
{
    uint32_t axis = j % 3;
    if (!c->interleaved)
        return j < c->sections[0] || c->sections[0] == 0 ? 0 : j < c->sections[0] + c->sections[1] ? 1 : 2;
    return j < 3 * c->sections[axis] ? (uint8_t)axis : 0;
}

void config_rope_init(struct rope *r, const struct rope_config *c)
{
    double theta = c->theta;
    *r = (struct rope){.half = c->rot / 2, .magnitude = 1};
    if (c->type == ROPE_DYNAMIC && c->alpha > 0)
        theta *= pow(c->alpha, (double)c->rot / (c->rot - 2));
    for (uint32_t j = 0; j < r->half; j++) {
        r->axis[j] = axis_of(c, j);
        double inv = pow(theta, -2.0 * j / c->rot);
        if (c->type == ROPE_LINEAR)
            inv /= c->factor;
        else if (c->type == ROPE_LLAMA3)
            inv = llama3(c, inv);
        else if (c->type == ROPE_YARN)
            inv = yarn(c, inv, j);
        else if (c->type == ROPE_LONG)
            inv /= (double)(c->beyond ? c->factors_long : c->factors_short)[j];
        else if (c->type == ROPE_FACTORS)
            inv /= (double)c->factors_short[j];
        else if (c->type == ROPE_PROPORTIONAL)
            inv = j < (uint32_t)(c->part * c->rot / 2) ? inv / c->factor : 0;
        r->inv_freq[j] = (float)inv;
    }
    if (c->type == ROPE_YARN)
        r->magnitude = yarn_magnitude(c);
    else if (c->type == ROPE_LONG)
        r->magnitude = longrope_magnitude(c);
}

double config_score_factor(const struct config *c)
{
    const struct rope_config *r = &c->ropes[0];
    double g = r->mscale_all > 0 ? yarn_growth(r, r->mscale_all) : 1;
    return g * g;
}

_Static_assert(CONFIG_LAYERS_MAX <= PLACEMENT_LAYERS_MAX, "each layer has a place");
_Static_assert(CONFIG_HEAD_DIM_MAX <= KERN_HEAD_MAX && CONFIG_HEAD_DIM_MAX / 2 <= ROPE_HALF_MAX,
               "attention and rotation take every head");

/* The group of a window. A window that no sequence outgrows is full attention. So are windows of a text that
 * is one step, and of more widths than there are groups, which costs memory only. */
static uint32_t group_of(struct config *c, uint32_t window)
{
    struct compute_shape *s = &c->shape;
    uint32_t g = 1;
    if (window == 0 || window >= c->context_max || c->both_ways)
        return 0;
    while (g < s->group_count && s->groups[g].window != window)
        g++;
    if (g == PAGE_GROUPS_MAX)
        return 0;
    if (g == s->group_count)
        s->groups[s->group_count++].window = window;
    return g;
}

enum kv_form config_own_kv_form(const struct config *c)
{
    bool rounded = c->backend->integers ? c->compute == COMPUTE_INT8 : compute_rounds(c->compute);
    return rounded ? KV_BF16 : KV_F32;
}

/* A device without integers reads K and V in f32; for some sizes of heads in its own form and 8 bits, too.
 * int4 has groups of values. */
static bool can_have(const struct config *c, const struct layer_config *l, enum kv_form form)
{
    uint32_t d = l->head_dim;
    bool fits = d == l->value_dim && !l->v_in_k && !c->both_ways && (d == 64 || d == 128 || d == 256);
    if (!kv_form_fits(form, d) || (!l->v_in_k && !kv_form_fits(form, l->value_dim)))
        return false;
    return form == KV_F32 || c->backend->integers ||
           ((form == config_own_kv_form(c) || (kv_form_scaled(form) && form != KV_INT4)) && fits);
}

/* Layers that cannot have the requested form stay in f32. */
static enum kv_form kv_form_of(const struct config *c, const struct layer_config *l)
{
    return can_have(c, l, c->kv_form) ? c->kv_form : KV_F32;
}

static struct kv_layer kv_layer_of(struct config *c, const struct layer_config *l)
{
    return (struct kv_layer){.heads = l->kv_heads,
                             .k_width = l->head_dim,
                             .v_width = l->value_dim,
                             .v_in_k = l->v_in_k,
                             .form = kv_form_of(c, l),
                             .group = group_of(c, l->window)};
}

/* The device of a layer. */
static uint32_t shard_of(const struct config *c, uint32_t layer)
{
    return c->shards.count > 1 ? c->shards.layer[layer] : 0;
}

static void fill_layers(struct config *c, struct kv_layer *kv, struct recurrent_layer *recurrent)
{
    c->shape.group_count = 1;
    for (uint32_t i = 0; i < c->layers; i++) {
        const struct layer_config *l = &c->layer[i];
        const struct block *state = layer_block(l, BLOCK_RECURRENT);
        if (layer_block(l, BLOCK_KV) && l->kv_from == NONE) {
            kv[l->index] = kv_layer_of(c, l);
            kv[l->index].shard = shard_of(c, i);
        }
        if (state) {
            recurrent[l->recurrent] = state->recurrent_layer(&c->shape);
            recurrent[l->recurrent].shard = shard_of(c, i);
        }
    }
    if (c->mtp_count)
        kv[c->mtp_layer.index] = kv_layer_of(c, &c->mtp_layer);
}

/* The groups of a draft model lie one after the other in the pages of its target. */
static void share_pages(struct compute_shape *s, struct kv_layer *kv, size_t stride)
{
    size_t begin[PAGE_GROUPS_MAX], bytes = 0;
    for (uint32_t g = 0; g < s->group_count; g++) {
        begin[g] = bytes;
        bytes += s->groups[g].page_bytes;
        s->groups[g].page_bytes = stride;
    }
    ASSERT(bytes <= stride);
    for (uint32_t i = 0; i < s->kv_count; i++)
        kv[i].offset += begin[kv[i].group];
}

static void lay_out_beside(struct config *c, uint32_t shard, struct kv_layer *kv,
                           struct recurrent_layer *recurrent)
{
    struct compute_shape *s = &c->beside_shapes[shard - 1];
    *s = c->shape;
    s->shard = shard;
    s->page_hidden = 0;
    page_lay_out_shard(kv, s->kv_count, shard, s->groups, s->group_count);
    state_lay_out(s, recurrent);
}

int config_lay_out(struct arena *a, struct config *c)
{
    struct kv_layer *kv = ARENA_ARRAY(a, struct kv_layer, c->layers + 1);
    struct recurrent_layer *recurrent = ARENA_ARRAY(a, struct recurrent_layer, c->layers);
    if (!kv || !recurrent)
        return -ENOMEM;
    c->shape = (struct compute_shape){.hidden = c->hidden,
                                      .vocab = c->vocab,
                                      .eps = c->eps,
                                      .layer_norm = c->layer_norm,
                                      .layers = c->layers,
                                      .context_max = c->context_max,
                                      .kv = kv,
                                      .kv_count = c->kv_count + c->mtp_count,
                                      .mtp_count = c->mtp_count,
                                      .recurrent_count = c->recurrent_count,
                                      .conv_width = c->conv_width,
                                      .key_heads = c->key_heads,
                                      .value_heads = c->value_heads,
                                      .key_dim = c->key_dim,
                                      .value_dim = c->value_dim,
                                      .decay_channels = c->decay_channels,
                                      .ssm = c->ssm,
                                      .experts = c->experts,
                                      .top_k = c->top_k,
                                      .drafts_max = c->drafts_max,
                                      .draft_vocab = c->draft_vocab};
    fill_layers(c, kv, recurrent);
    page_lay_out(kv, c->shape.kv_count, c->shape.groups, c->shape.group_count);
    if (page_hidden_bytes(&c->shape) > 0)
        c->shape.page_hidden = c->shape.groups[0].page_bytes;
    c->shape.groups[0].page_bytes += page_hidden_bytes(&c->shape) + c->page_beside;
    if (c->page_stride > 0)
        share_pages(&c->shape, kv, c->page_stride);
    state_lay_out(&c->shape, recurrent);
    for (uint32_t i = 1; i < c->shards.count; i++)
        lay_out_beside(c, i, kv, recurrent);
    return 0;
}

static bool same_kv(const struct model_kv *x, const struct model_kv *y)
{
    return x->heads == y->heads && x->k_width == y->k_width && x->v_width == y->v_width &&
           x->v_in_k == y->v_in_k && x->window == y->window && x->group == y->group;
}

static void count_kv(struct model_shape *s, const struct kv_layer *l, uint32_t window)
{
    struct model_kv one = {.heads = l->heads,
                           .k_width = l->k_width,
                           .v_width = l->v_width,
                           .v_in_k = l->v_in_k,
                           .window = window,
                           .group = l->group};
    uint32_t i = 0;
    while (i < s->kv_count && i + 1 < MODEL_KV_MAX && !same_kv(&s->kv[i], &one))
        i++;
    if (i == s->kv_count) {
        s->kv[i] = one;
        s->kv_count++;
    }
    s->kv[i].layers++;
    s->kv[i].page_bytes += page_layer_bytes(l);
}

static bool any_can_have(const struct config *c, enum kv_form form)
{
    for (uint32_t i = 0; i < c->layers; i++) {
        if (layer_block(&c->layer[i], BLOCK_KV) && can_have(c, &c->layer[i], form))
            return true;
    }
    return false;
}

void config_fill_layouts(const struct config *c, struct model_shape *s)
{
    for (uint32_t i = 0; i < c->layers; i++) {
        if (layer_block(&c->layer[i], BLOCK_KV) && c->layer[i].kv_from == NONE)
            count_kv(s, &c->shape.kv[c->layer[i].index], c->layer[i].window);
    }
    if (c->mtp_count)
        count_kv(s, &c->shape.kv[c->mtp_layer.index], c->mtp_layer.window);
    memcpy(s->groups, c->shape.groups, sizeof(s->groups));
    s->group_count = c->shape.group_count;
    s->page_beside = c->page_beside;
    for (uint32_t g = 0; g < s->group_count; g++)
        s->page_bytes += s->groups[g].page_bytes;
    s->kv_form = any_can_have(c, c->kv_form) ? c->kv_form : KV_F32;
    enum kv_form smaller = kv_form_scaled(s->kv_form) ? KV_AUTO : s->kv_form + 1;
    s->kv_smaller = smaller != KV_AUTO && any_can_have(c, smaller) ? smaller : KV_AUTO;
    s->recurrent_layers = c->recurrent_count;
    s->state_bytes = c->shape.state_bytes;
    s->state_pending_max = state_pending_max(&c->shape);
    s->shard_count = MAX_OF(c->shards.count, 1u);
    for (uint32_t i = 0; i + 1 < s->shard_count; i++) {
        const struct compute_shape *own = &c->beside_shapes[i];
        s->beside[i].state_bytes = own->state_bytes;
        for (uint32_t g = 0; g < s->group_count; g++)
            s->beside[i].page_bytes[g] = own->groups[g].page_bytes;
    }
}
