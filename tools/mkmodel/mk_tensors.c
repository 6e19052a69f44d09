/* mk_tensors.c - names and shapes as the two kinds of writers have them, and values from a counter.
 *
 * Hugging Face: bf16 or FP8, norms of the hybrid families as w - 1, the convolution's taps last, experts
 * fused.
 * MLX: affine, norms as w, taps in the middle, experts stacked in switch_mlp.
 * A matrix's values have variance 1 / fan_in, roughly, and embeddings beside a head of its own 1: activations
 * neither grow nor die, and nothing overflows however deep the model. Eight bytes are one draw, so filling
 * runs at the speed of writing. */
#include "mkmodel/mk_tensors.h"

#include "base/check.h"
#include "base/rng.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* ---- the list ---- */

struct lister {
    const struct mk_shape *shape;
    const struct mk_form *form;
    const char *prefix;
    struct mk_tensors *tensors;
    uint32_t layer;
    bool failed;
};

static struct mk_tensor *append(struct lister *l)
{
    struct mk_tensors *t = l->tensors;
    if (t->count == t->count_max) {
        uint32_t more = MAX_OF(2 * t->count_max, 256u);
        struct mk_tensor *list = realloc(t->list, more * sizeof(*list));
        if (!list) {
            l->failed = true;
            return NULL;
        }
        t->list = list;
        t->count_max = more;
    }
    struct mk_tensor *new = &t->list[t->count++];
    *new = (struct mk_tensor){.stream = t->count};
    return new;
}

struct dims {
    uint32_t rank;
    uint64_t at[5];
};

static uint64_t dims_count(const struct dims *d)
{
    uint64_t n = 1;
    for (uint32_t i = 0; i < d->rank; i++)
        n *= d->at[i];
    return n;
}

static struct mk_tensor *add(struct lister *l, enum mk_fill fill, struct dims d, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Bytes of a value. */
static uint32_t width_of(enum mk_fill fill)
{
    if (fill == MK_FLOATS)
        return 1;
    return fill == MK_FIELDS || fill == MK_DECAY || fill == MK_BLOCKS ? 4 : 2;
}

static struct mk_tensor *add(struct lister *l, enum mk_fill fill, struct dims d, const char *format, ...)
{
    struct mk_tensor *t = append(l);
    if (!t)
        return NULL;
    va_list args;
    va_start(args, format);
    int n = vsnprintf(t->name, sizeof(t->name), format, args);
    va_end(args);
    ASSERT(n > 0 && (size_t)n < sizeof(t->name));
    t->fill = fill;
    t->rank = d.rank;
    memcpy(t->dims, d.at, sizeof(d.at));
    t->bytes = dims_count(&d) * width_of(fill);
    l->tensors->bytes += t->bytes;
    return t;
}

/* A matrix, or a stack of them, of module `name`; its last dimension is what it reads. `suffix` follows a
 * dense one's. */
static void add_matrix(struct lister *l, uint32_t bits, struct dims d, const char *name, const char *suffix)
{
    uint32_t fan_in = (uint32_t)d.at[d.rank - 1];
    struct mk_tensor *t;
    if (bits == 0) {
        t = add(l, MK_BF16, d, "%s%s", name, suffix);
        if (t)
            t->fan_in = fan_in;
        return;
    }
    ASSERT(fan_in % MK_GROUP == 0);
    static const struct {
        enum mk_fill fill;
        const char *suffix;
    } parts[] = {{MK_FIELDS, ".weight"}, {MK_SCALES, ".scales"}, {MK_BIASES, ".biases"}};
    uint64_t stream = l->tensors->count + 1;
    for (size_t i = 0; i < COUNT_OF(parts); i++) {
        d.at[d.rank - 1] = parts[i].fill == MK_FIELDS ? (uint64_t)fan_in * bits / 32 : fan_in / MK_GROUP;
        t = add(l, parts[i].fill, d, "%s%s", name, parts[i].suffix);
        if (!t)
            return;
        t->fan_in = fan_in;
        t->bits = bits;
        t->stream = parts[i].fill == MK_BIASES ? stream + 1 : t->stream;
    }
}

/* A matrix of FP8 and its scales. */
static void add_floats(struct lister *l, uint64_t out, uint64_t in, const char *name)
{
    struct mk_tensor *t = add(l, MK_FLOATS, (struct dims){2, {out, in}}, "%s.weight", name);
    const struct dims blocks = {2, {DIV_UP(out, MK_BLOCK), DIV_UP(in, MK_BLOCK)}};
    if (t)
        t = add(l, MK_BLOCKS, blocks, "%s.weight_scale_inv", name);
    if (t)
        t->fan_in = (uint32_t)in;
}

/* "prefix + layers.N. + name" into ret. */
static const char *layer_name(const struct lister *l, const char *name, char ret[120])
{
    int n = snprintf(ret, 120, "%slayers.%u.%s", l->prefix, l->layer, name);
    ASSERT(n > 0 && n < 120);
    return ret;
}

static void add_linear(struct lister *l, const char *name, uint64_t out, uint64_t in)
{
    char full[120];
    layer_name(l, name, full);
    if (l->form->floats)
        add_floats(l, out, in, full);
    else
        add_matrix(l, l->form->bits, (struct dims){2, {out, in}}, full, ".weight");
}

static void add_vector(struct lister *l, enum mk_fill fill, const char *name, uint64_t n)
{
    char full[120];
    add(l, fill, (struct dims){1, {n}}, "%s", layer_name(l, name, full));
}

static enum mk_fill norm_fill(const struct lister *l)
{
    return mk_shape_is_hybrid(l->shape) && l->form->bits == 0 ? MK_AROUND0 : MK_AROUND1;
}

static void list_attention(struct lister *l)
{
    const struct mk_shape *s = l->shape;
    uint64_t q = (uint64_t)s->heads * s->head_dim, kv = (uint64_t)s->kv_heads * s->head_dim;
    add_linear(l, "self_attn.q_proj", mk_shape_is_hybrid(s) ? 2 * q : q, s->hidden);
    add_linear(l, "self_attn.k_proj", kv, s->hidden);
    add_linear(l, "self_attn.v_proj", kv, s->hidden);
    add_linear(l, "self_attn.o_proj", s->hidden, q);
    add_vector(l, norm_fill(l), "self_attn.q_norm.weight", s->head_dim);
    add_vector(l, norm_fill(l), "self_attn.k_norm.weight", s->head_dim);
}

static void list_delta_net(struct lister *l)
{
    const struct mk_shape *s = l->shape;
    char full[120];
    uint64_t values = (uint64_t)s->value_heads * s->linear_dim;
    uint64_t channels = 2 * (uint64_t)s->key_heads * s->linear_dim + values;
    add_linear(l, "linear_attn.in_proj_qkv", channels, s->hidden);
    add_linear(l, "linear_attn.in_proj_z", values, s->hidden);
    add_linear(l, "linear_attn.in_proj_b", s->value_heads, s->hidden);
    add_linear(l, "linear_attn.in_proj_a", s->value_heads, s->hidden);
    add_linear(l, "linear_attn.out_proj", s->hidden, values);
    struct dims conv =
        l->form->bits ? (struct dims){3, {channels, MK_TAPS, 1}} : (struct dims){3, {channels, 1, MK_TAPS}};
    struct mk_tensor *t = add(l, MK_BF16, conv, "%s", layer_name(l, "linear_attn.conv1d.weight", full));
    if (t)
        t->fan_in = MK_TAPS;
    add_vector(l, MK_DECAY, "linear_attn.A_log", s->value_heads);
    add_vector(l, MK_AROUND0, "linear_attn.dt_bias", s->value_heads);
    add_vector(l, MK_AROUND1, "linear_attn.norm.weight", s->linear_dim);
}

static void list_mlp(struct lister *l)
{
    const struct mk_shape *s = l->shape;
    add_linear(l, "mlp.gate_proj", s->intermediate, s->hidden);
    add_linear(l, "mlp.up_proj", s->intermediate, s->hidden);
    add_linear(l, "mlp.down_proj", s->hidden, s->intermediate);
}

static void list_experts(struct lister *l)
{
    const struct mk_shape *s = l->shape;
    char full[120];
    uint64_t im = s->expert_intermediate;
    struct dims up = {3, {s->experts, im, s->hidden}}, down = {3, {s->experts, s->hidden, im}};
    struct dims fused = {3, {s->experts, 2 * im, s->hidden}};
    add_matrix(l, mk_form_gate_bits(l->form), (struct dims){2, {s->experts, s->hidden}},
               layer_name(l, "mlp.gate", full), ".weight");
    if (s->shared_intermediate)
        add_matrix(l, mk_form_gate_bits(l->form), (struct dims){2, {1, s->hidden}},
                   layer_name(l, "mlp.shared_expert_gate", full), ".weight");
    if (l->form->bits == 0) {
        add_matrix(l, 0, fused, layer_name(l, "mlp.experts.gate_up_proj", full), "");
        add_matrix(l, 0, down, layer_name(l, "mlp.experts.down_proj", full), "");
    } else {
        add_matrix(l, l->form->bits, up, layer_name(l, "mlp.switch_mlp.gate_proj", full), "");
        add_matrix(l, l->form->bits, up, layer_name(l, "mlp.switch_mlp.up_proj", full), "");
        add_matrix(l, l->form->bits, down, layer_name(l, "mlp.switch_mlp.down_proj", full), "");
    }
    if (s->shared_intermediate == 0)
        return;
    add_linear(l, "mlp.shared_expert.gate_proj", s->shared_intermediate, s->hidden);
    add_linear(l, "mlp.shared_expert.up_proj", s->shared_intermediate, s->hidden);
    add_linear(l, "mlp.shared_expert.down_proj", s->hidden, s->shared_intermediate);
}

static void list_layer(struct lister *l)
{
    const struct mk_shape *s = l->shape;
    add_vector(l, norm_fill(l), "input_layernorm.weight", s->hidden);
    if (mk_shape_is_full(s, l->layer))
        list_attention(l);
    else
        list_delta_net(l);
    add_vector(l, norm_fill(l), "post_attention_layernorm.weight", s->hidden);
    if (s->experts)
        list_experts(l);
    else
        list_mlp(l);
}

/* ---- the vision encoder ---- */

static void add_vision_norm(struct lister *l, const char *path, uint64_t n)
{
    add(l, MK_AROUND1, (struct dims){1, {n}}, "%s.weight", path);
    add(l, MK_AROUND0, (struct dims){1, {n}}, "%s.bias", path);
}

static void add_vision_linear(struct lister *l, const char *path, uint64_t out, uint64_t in)
{
    add_matrix(l, 0, (struct dims){2, {out, in}}, path, ".weight");
    add(l, MK_AROUND0, (struct dims){1, {out}}, "%s.bias", path);
}

/* head + "." + tail into ret. */
static const char *join(const char *head, const char *tail, char ret[120])
{
    int n = snprintf(ret, 120, "%s.%s", head, tail);
    ASSERT(n > 0 && n < 120);
    return ret;
}

static void list_vision_block(struct lister *l, const char *head)
{
    const struct mk_vision *t = &l->shape->vision;
    char path[120];
    add_vision_norm(l, join(head, "norm1", path), t->hidden);
    add_vision_norm(l, join(head, "norm2", path), t->hidden);
    add_vision_linear(l, join(head, "attn.qkv", path), 3 * (uint64_t)t->hidden, t->hidden);
    add_vision_linear(l, join(head, "attn.proj", path), t->hidden, t->hidden);
    add_vision_linear(l, join(head, "mlp.linear_fc1", path), t->intermediate, t->hidden);
    add_vision_linear(l, join(head, "mlp.linear_fc2", path), t->hidden, t->intermediate);
}

static void list_vision(struct lister *l)
{
    const struct mk_vision *t = &l->shape->vision;
    const char *prefix = l->form->bits ? "vision_tower" : "model.visual";
    uint64_t merged = (uint64_t)t->hidden * MK_MERGE * MK_MERGE;
    char head[120], path[120];
    struct dims patches = l->form->bits ? (struct dims){5, {t->hidden, 2, MK_PATCH, MK_PATCH, 3}}
                                        : (struct dims){5, {t->hidden, 3, 2, MK_PATCH, MK_PATCH}};
    struct mk_tensor *w = add(l, MK_BF16, patches, "%s.patch_embed.proj.weight", prefix);
    if (w)
        w->fan_in = 3 * 2 * MK_PATCH * MK_PATCH;
    add(l, MK_AROUND0, (struct dims){1, {t->hidden}}, "%s.patch_embed.proj.bias", prefix);
    add(l, MK_AROUND0, (struct dims){2, {(uint64_t)t->grid * t->grid, t->hidden}}, "%s.pos_embed.weight",
        prefix);
    for (uint32_t i = 0; i < t->depth; i++) {
        snprintf(head, sizeof(head), "%s.blocks.%u", prefix, i);
        list_vision_block(l, head);
    }
    join(prefix, "merger", head);
    add_vision_norm(l, join(head, "norm", path), t->hidden);
    add_vision_linear(l, join(head, "linear_fc1", path), merged, merged);
    add_vision_linear(l, join(head, "linear_fc2", path), l->shape->hidden, merged);
}

int mk_tensors_list(const struct mk_shape *s, const struct mk_form *f, uint32_t layers,
                    struct mk_tensors *ret)
{
    struct mk_tensors tensors = {0};
    struct lister l = {.shape = s, .form = f, .prefix = mk_shape_prefix(s, f), .tensors = &tensors};
    struct dims table = {2, {s->vocab, s->hidden}};
    char name[120];
    snprintf(name, sizeof(name), "%sembed_tokens", l.prefix);
    add_matrix(&l, f->bits, table, name, ".weight");
    /* Tokens differ more than what layers add to all alike, so that they take different experts. */
    for (size_t i = 0; i < tensors.count && !s->tied; i++)
        tensors.list[i].fan_in = 1;
    for (l.layer = 0; l.layer < layers; l.layer++)
        list_layer(&l);
    add(&l, norm_fill(&l), (struct dims){1, {s->hidden}}, "%snorm.weight", l.prefix);
    if (!s->tied)
        add_matrix(&l, f->bits, table,
                   mk_shape_is_hybrid(s) && f->bits ? "language_model.lm_head" : "lm_head", ".weight");
    if (s->vision.depth)
        list_vision(&l);
    if (l.failed) {
        mk_tensors_done(&tensors);
        return -ENOMEM;
    }
    *ret = tensors;
    return 0;
}

void mk_tensors_done(struct mk_tensors *l)
{
    free(l->list);
    *l = (struct mk_tensors){0};
}

/* ---- values ---- */

const char *mk_tensor_dtype(const struct mk_tensor *t)
{
    switch (t->fill) {
    case MK_FIELDS:
        return "U32";
    case MK_DECAY:
    case MK_BLOCKS:
        return "F32";
    case MK_FLOATS:
        return "F8_E4M3";
    default:
        return "BF16";
    }
}

/* x, rounded down to what bf16 holds. */
static uint16_t bf16_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return (uint16_t)(bits >> 16);
}

/* Four bf16 of random sign and mantissa and one of two neighbouring exponents, such that their root mean
 * square is near 1 / sqrt(fan_in). */
static void fill_bf16(const struct mk_tensor *t, uint64_t seed, uint64_t first, uint64_t *ret, size_t words)
{
    /* Magnitudes in [1, 4) made so have a root mean square of 2.4; the exponent's low bit must be free. */
    uint64_t exponent = (uint64_t)(127 + lround(log2(1 / (2.4 * sqrt(t->fan_in))))) & ~1ull;
    uint64_t lanes = exponent * 0x0001000100010001ull << 7;
    for (size_t i = 0; i < words; i++)
        ret[i] = (rng_at(seed, first + i) & 0x80ff80ff80ff80ffull) | lanes;
}

/* The size of a step between two fields, times 1 to 1.5 by chance: fields have a deviation of 2^bits /
 * sqrt(12). */
static float scale_at(const struct mk_tensor *t, uint32_t random16)
{
    double step = sqrt(12.0 / t->fan_in) / (1u << t->bits);
    uint16_t bits = bf16_bits((float)(step * (1 + random16 / 131072.0)));
    uint32_t wide = (uint32_t)bits << 16;
    float x;
    memcpy(&x, &wide, sizeof(x));
    return x;
}

static uint16_t small_value(const struct mk_tensor *t, uint32_t random16)
{
    float around0 = ((float)random16 - 32768) / (8 * 32768);
    switch (t->fill) {
    case MK_SCALES:
        return bf16_bits(scale_at(t, random16));
    case MK_BIASES:
        /* The mean of a matrix's values is about 0. Else all tokens become alike. */
        return bf16_bits(-scale_at(t, random16) * (float)((1u << t->bits) - 1) / 2);
    case MK_AROUND1:
        return bf16_bits(1 + around0);
    default:
        return bf16_bits(around0);
    }
}

static void fill_small(const struct mk_tensor *t, uint64_t seed, uint64_t first, uint64_t *ret, size_t words)
{
    for (size_t i = 0; i < words; i++) {
        uint64_t random = rng_at(seed, first + i);
        uint16_t values[4];
        for (int j = 0; j < 4; j++)
            values[j] = small_value(t, (uint32_t)(random >> 16 * j & 0xffff));
        memcpy(&ret[i], values, sizeof(values));
    }
}

/* Eight E4M3 of random sign and mantissa and exponent -1 or 0: their root mean square is 1.2. */
static void fill_floats(uint64_t seed, uint64_t first, uint64_t *ret, size_t words)
{
    for (size_t i = 0; i < words; i++)
        ret[i] = (rng_at(seed, first + i) & 0x8f8f8f8f8f8f8f8full) | 0x3030303030303030ull;
}

/* Scales of 0.75 to 1.25 times their mean. The root mean square of scaled values is near 1 / sqrt(fan_in). */
static void fill_blocks(const struct mk_tensor *t, uint64_t seed, uint64_t first, uint64_t *ret, size_t words)
{
    const double mean = 1 / (1.2 * sqrt(t->fan_in));
    for (size_t i = 0; i < words; i++) {
        const uint64_t random = rng_at(seed, first + i);
        const float values[2] = {(float)(mean * (0.75 + (double)(random & 0xffff) / 131072)),
                                 (float)(mean * (0.75 + (double)(random >> 16 & 0xffff) / 131072))};
        memcpy(&ret[i], values, sizeof(values));
    }
}

static void fill_decay(uint64_t seed, uint64_t first, uint64_t *ret, size_t words)
{
    for (size_t i = 0; i < words; i++) {
        uint64_t random = rng_at(seed, first + i);
        float values[2] = {(float)(random & 0xffff) / 32768, (float)(random >> 16 & 0xffff) / 32768};
        memcpy(&ret[i], values, sizeof(values));
    }
}

void mk_tensor_fill(const struct mk_tensor *t, uint64_t seed, uint64_t from, size_t len, void *ret)
{
    uint64_t first = from / 8, stream = rng_at(seed, t->stream);
    size_t words = (len + 7) / 8;
    ASSERT(from % 8 == 0);
    switch (t->fill) {
    case MK_BF16:
        fill_bf16(t, stream, first, ret, words);
        break;
    case MK_FIELDS:
        for (size_t i = 0; i < words; i++)
            ((uint64_t *)ret)[i] = rng_at(stream, first + i);
        break;
    case MK_FLOATS:
        fill_floats(stream, first, ret, words);
        break;
    case MK_BLOCKS:
        fill_blocks(t, stream, first, ret, words);
        break;
    case MK_DECAY:
        fill_decay(stream, first, ret, words);
        break;
    default:
        fill_small(t, stream, first, ret, words);
    }
}
