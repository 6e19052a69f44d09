/* config_shape.c - what the compute contract takes of a configuration: its numbers, the layouts of its
 * memory, and the frequencies of its rotation, rounded to f32 like the reference's. */
#include "model/blocks.h"
#include "model/config.h"

#include "compute/layout.h"

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
    double low = fmax(floor(yarn_index(c, c->beta_fast)), 0);
    double high = fmin(ceil(yarn_index(c, c->beta_slow)), c->rot - 1);
    double width = high > low ? high - low : 0.001;
    double ramp = fmin(fmax((j - low) / width, 0), 1);
    return inv / c->factor * ramp + inv * (1 - ramp);
}

/* Frequencies go to rows and columns in turn, as far as those have a section: T H W T H W ... T T. */
static uint8_t axis_of(const struct rope_config *c, uint32_t j)
{
    uint32_t axis = j % 3;
    return j < 3 * c->sections[axis] ? (uint8_t)axis : 0;
}

void rope_init(struct rope *r, const struct rope_config *c)
{
    *r = (struct rope){.half = c->rot / 2, .magnitude = 1};
    for (uint32_t j = 0; j < r->half; j++) {
        r->axis[j] = axis_of(c, j);
        double inv = pow(c->theta, -2.0 * j / c->rot);
        if (c->type == ROPE_LINEAR)
            inv /= c->factor;
        else if (c->type == ROPE_LLAMA3)
            inv = llama3(c, inv);
        else if (c->type == ROPE_YARN)
            inv = yarn(c, inv, j);
        r->inv_freq[j] = (float)inv;
    }
    if (c->type == ROPE_YARN)
        r->magnitude = c->attention_factor > 0 ? c->attention_factor
                       : c->factor > 1         ? 0.1 * log(c->factor) + 1
                                               : 1;
}

static struct kv_layer kv_layer_of(const struct layer_config *l)
{
    return (struct kv_layer){.heads = l->kv_heads, .head_dim = l->head_dim};
}

static void fill_layers(const struct config *c, struct kv_layer *kv, struct recurrent_layer *recurrent)
{
    for (uint32_t i = 0; i < c->layers; i++) {
        const struct layer_config *l = &c->layer[i];
        if (l->mixer->state == BLOCK_KV)
            kv[l->index] = kv_layer_of(l);
        else if (l->mixer->state == BLOCK_RECURRENT)
            recurrent[l->index] = l->mixer->recurrent_layer(&c->shape);
    }
    if (c->mtp_count)
        kv[c->mtp_layer.index] = kv_layer_of(&c->mtp_layer);
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
                                      .layers = c->layers,
                                      .kv = kv,
                                      .kv_count = c->kv_count + c->mtp_count,
                                      .mtp_count = c->mtp_count,
                                      .recurrent_count = c->recurrent_count,
                                      .conv_width = c->conv_width,
                                      .key_heads = c->key_heads,
                                      .value_heads = c->value_heads,
                                      .key_dim = c->key_dim,
                                      .value_dim = c->value_dim,
                                      .experts = c->experts,
                                      .top_k = c->top_k,
                                      .drafts_max = c->drafts_max,
                                      .draft_vocab = c->draft_vocab};
    fill_layers(c, kv, recurrent);
    c->shape.page_bytes = page_lay_out(kv, c->shape.kv_count);
    state_lay_out(&c->shape, recurrent);
    return 0;
}

static bool same_kv(const struct model_kv *x, const struct model_kv *y)
{
    return x->heads == y->heads && x->head_dim == y->head_dim && x->window == y->window;
}

static void count_kv(struct model_shape *s, const struct kv_layer *l, uint32_t window)
{
    struct model_kv one = {.heads = l->heads, .head_dim = l->head_dim, .window = window};
    uint32_t i = 0;
    while (i < s->kv_count && i + 1 < MODEL_KV_MAX && !same_kv(&s->kv[i], &one))
        i++;
    if (i == s->kv_count) {
        s->kv[i] = one;
        s->kv_count++;
    }
    s->kv[i].layers++;
    s->kv[i].page_bytes += 2 * page_half_bytes(l) * l->heads;
}

void config_fill_layouts(const struct config *c, struct model_shape *s)
{
    for (uint32_t i = 0; i < c->layers; i++) {
        if (c->layer[i].mixer->state == BLOCK_KV)
            count_kv(s, &c->shape.kv[c->layer[i].index], c->layer[i].window);
    }
    if (c->mtp_count)
        count_kv(s, &c->shape.kv[c->mtp_layer.index], c->mtp_layer.window);
    s->page_bytes = c->shape.page_bytes;
    s->recurrent_layers = c->recurrent_count;
    s->state_bytes = c->shape.state_bytes;
    s->state_pending_max = state_pending_max(&c->shape);
}
