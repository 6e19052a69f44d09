/* cuda_fragments.c - weights of bf16 mode: which there are, how they are stored, and products with them.
 *
 * Dense weights have 16 bits, codes of whole numbers 4 or 8: the next width that holds them. Codes that look
 * up numbers have 8, and so have small floats (kernels/repack.cu). */
#include "compute/cuda/cuda_step.h"

/* Returns the bits of fragments that are made of a matrix's panels. */
static uint32_t bits_of(const struct matrix *m)
{
    if (m->form != MATRIX_AFFINE)
        return 16;
    return m->codes == CODES_WHOLE && m->bits <= 4 ? 4 : 8;
}

/* The narrowest floats that hold scales and biases unchanged. */
static enum matrix_form sides_of(const struct matrix *m)
{
    if (m->super || m->qparams == MATRIX_F32)
        return MATRIX_F32;
    return m->qparams == MATRIX_F16 ? MATRIX_F16 : MATRIX_BF16;
}

/* Beside scales lie biases, which small floats have, too, and else zero points. */
static bool has_biases(const struct matrix *m)
{
    return m->codes == CODES_E4M3 || (m->codes == CODES_WHOLE && m->bias_kind == BIASES_STORED);
}

static struct weight shape_of(const struct linear_source *s, uint32_t count)
{
    const struct matrix m = matrix_begin(s, count, NULL);
    struct weight w = {.n = m.n,
                       .k = m.k,
                       .experts = m.experts,
                       .form = CUDA_FRAGMENTS,
                       .bits = (uint8_t)bits_of(&m),
                       .group = m.group,
                       .qparams = (uint8_t)sides_of(&m),
                       .codes = m.codes == CODES_E4M3 ? CODES_E4M3 : CODES_WHOLE,
                       .biases = has_biases(&m) ? BIASES_STORED : BIASES_ZEROS};
    uint64_t units = DIV_UP(m.k, CUDA_UNIT), panel = units * 128 * w.bits;
    if (w.bits < 16)
        panel += DIV_UP(units * CUDA_UNIT, m.group) * CUDA_PANEL * (w.qparams == MATRIX_F32 ? 8u : 4u);
    w.expert_bytes = panel * DIV_UP(m.n, CUDA_PANEL);
    return w;
}

/* Whether products with fragments of w take small floats, too: in whole units that have one scale. */
static bool fits_small(const struct weight *w)
{
    return w->codes == CODES_E4M3 && w->experts == 1 && w->group == CUDA_SMALL_UNIT &&
           w->k % CUDA_SMALL_UNIT == 0;
}

/* Groups of other widths keep their form, in f32. */
bool cuda_takes_fragments(const struct linear_source *s, uint32_t count, enum compute_mode mode)
{
    bool exact = !compute_rounds(mode) || s->transposed;
    for (uint32_t i = 0; i < count; i++)
        exact |= s[i].exact;
    return !exact && (!s->affine || s->group == 16 || s->group == 32 || s->group % CUDA_UNIT == 0);
}

uint64_t cuda_weight_bytes(const struct linear_source *s, uint32_t count, enum compute_mode mode)
{
    if (!cuda_takes_fragments(s, count, mode))
        return matrix_stack_bytes(s, count);
    const struct weight w = shape_of(s, count);
    return w.expert_bytes * w.experts;
}

struct weight cuda_fragments_begin(const struct linear_source *s, uint32_t count, enum compute_mode mode,
                                   dev_ptr at)
{
    struct weight w = shape_of(s, count);
    w.data = at;
    w.mode = mode == COMPUTE_FP8 && !fits_small(&w) ? COMPUTE_BF16 : mode;
    return w;
}

#define REPACKED_WORDS 4u /* words of a thread, about */

void cuda_fragments_put(struct cuda_device *d, const struct weight *w, const struct cuda_repack *rows)
{
    struct cuda_repack a = *rows;
    void *arguments[] = {&a};
    a.to = cuda_matrix(w);
    cuda_use(d);
    uint32_t words = DIV_UP(w->k, CUDA_UNIT) * 128u * w->bits / 4;
    const struct cuda_grid grid = {DIV_UP(a.lane + a.count, CUDA_PANEL),
                                   DIV_UP(words, CUDA_THREADS * REPACKED_WORDS), 1, CUDA_THREADS, 0};
    cuda_must(d, cuda_launch(d, d->stream, CUDA_KERNEL_repack, grid, arguments), "repack");
    cuda_queued(d);
}

/* ---- products ---- */

static bool has_one_chain(const struct weight *w)
{
    return w->n >= CUDA_ONE_CHAIN_ROWS;
}
static uint32_t side_bytes(const struct weight *w)
{
    uint32_t groups = w->bits == 16 ? 0 : w->group < CUDA_UNIT ? CUDA_UNIT / w->group : 1;
    return groups * CUDA_PANEL * (w->qparams == MATRIX_F32 ? 8 : 4);
}

static uint32_t index_of(const struct weight *w)
{
    return w->bits == 16 ? 0 : w->bits == 8 ? 1 : 2;
}

/* How the kernel for few columns goes through a matrix. */
struct narrow_form {
    uint32_t warps; /* warps of a block */
    bool deep;      /* cuda_product.deep: one block on a multiprocessor, too */
};

static uint32_t narrow_shared(const struct weight *w, uint32_t columns, struct narrow_form f)
{
    uint32_t stages = w->bits == 16  ? (f.deep ? CUDA_RING_DEEP : CUDA_RING_16)
                      : w->bits == 8 ? CUDA_RING_8
                                     : CUDA_RING_4;
    uint32_t ring = f.warps * stages * (128u * w->bits + side_bytes(w));
    return ring + columns * DIV_UP(w->k, CUDA_UNIT) * 2 * CUDA_UNIT;
}

/* A multiprocessor's clocks for a tile of wgmma beside its units, and bytes of L2 that it reads in one. */
#define CUDA_WIDE_FIXED 3000u
#define CUDA_WIDE_L2    24u

/* The form that takes the least room. */
static struct narrow_form narrow_least(const struct weight *w)
{
    return (struct narrow_form){has_one_chain(w) ? 4 : CUDA_CHAINS, false};
}

/* With one chain a warp has whole panels, and each multiprocessor one block. So no launch puts more panels on
 * one than on another. The number of warps is the one that leaves the fewest idle in the last round. */
static struct narrow_form narrow_form(const struct cuda_device *d, const struct weight *w, uint32_t columns,
                                      bool experts)
{
    uint32_t panels = DIV_UP(w->n, CUDA_PANEL);
    struct narrow_form best = narrow_least(w);
    const uint32_t fewest = best.warps;
    uint64_t least = UINT64_MAX;
    if (!has_one_chain(w)) {
        const struct narrow_form deep = {CUDA_CHAINS, true};
        bool long_chains = w->k >= CUDA_CHAINS * CUDA_RING_DEEP * CUDA_UNIT;
        return w->bits == 16 && long_chains && !experts && narrow_shared(w, columns, deep) <= d->shared_max
                   ? deep
                   : best;
    }
    for (uint32_t warps = CUDA_NARROW_WARPS_1; warps >= fewest; warps -= 2) {
        const struct narrow_form f = {warps, false};
        uint64_t at_once = (uint64_t)d->units * warps, slots = DIV_UP(panels, at_once) * at_once;
        if (slots < least && narrow_shared(w, columns, f) <= d->shared_max) {
            best = f;
            least = slots;
        }
    }
    return best;
}

/* Groups of sorted pairs, at most. */
static uint32_t groups_max(const struct weight *w, uint32_t pairs, uint32_t columns)
{
    return MIN_OF(pairs, w->experts + pairs / columns);
}

/* Blocks of sorted pairs that a multiprocessor gets for each that it can have at once, about. */
#define SORTED_ROUNDS 3u

/* Short chains: a warp has all of them, as warps with one each would meet after few units. */
static bool has_short_chains(const struct weight *w)
{
    return !has_one_chain(w) && w->k <= CUDA_SERIAL_K;
}

/* Bytes of the rings of a block of experts' columns, and of a group's inputs. */
static uint32_t experts_ring(const struct weight *w)
{
    uint32_t stage = 2 * CUDA_EXPERTS_UNITS(w->bits) * (128u * w->bits + side_bytes(w));
    return CUDA_EXPERTS_WARPS * CUDA_EXPERTS_STAGES(w->bits) * stage;
}
static uint32_t experts_inputs(const struct weight *w, uint32_t columns)
{
    return columns * DIV_UP(w->k, CUDA_UNIT) * 2 * CUDA_UNIT;
}

/* Whether blocks with several groups' columns have the room. */
static bool takes_experts(const struct cuda *c, const struct weight *w, uint32_t columns)
{
    return !has_one_chain(w) && columns >= CUDA_NARROW_COLUMNS / 2 && columns <= CUDA_NARROW_COLUMNS &&
           experts_ring(w) + experts_inputs(w, columns) <= c->device->shared_max;
}

/* Sorted columns, a block on each multiprocessor. */
static void launch_experts(struct cuda *c, const struct weight *w, const struct cuda_tiles *tiles)
{
    static const enum cuda_kernel kernels[3] = {CUDA_KERNEL_experts16, CUDA_KERNEL_experts8,
                                                CUDA_KERNEL_experts4};
    const uint32_t ring = experts_ring(w), inputs = experts_inputs(w, c->sorted_by);
    struct cuda_tiles t = *tiles;
    t.columns = c->sorted_by;
    t.stages = MIN_OF((c->device->shared_max - ring) / inputs, CUDA_EXPERTS_GROUPS);
    cuda_run_product(
        c, kernels[index_of(w)],
        (struct cuda_grid){c->device->units, 1, 1, 32 * CUDA_EXPERTS_WARPS, ring + t.stages * inputs}, &t);
}

/* Blocks that run at once take all panels. */
static void launch_narrow(struct cuda *c, const struct weight *w, const struct cuda_product *k)
{
    static const enum cuda_kernel kernels[3][2] = {{CUDA_KERNEL_narrow16_8, CUDA_KERNEL_narrow16_1},
                                                   {CUDA_KERNEL_narrow8_8, CUDA_KERNEL_narrow8_1},
                                                   {CUDA_KERNEL_narrow4_8, CUDA_KERNEL_narrow4_1}};
    const struct cuda_device *d = c->device;
    bool sorted = k->sorted.order != NULL, serial = k->expert && has_short_chains(w);
    bool one = has_one_chain(w) || serial;
    uint32_t columns = sorted ? c->sorted_by : k->expert ? 1 : MIN_OF(k->count, CUDA_NARROW_COLUMNS);
    const struct narrow_form f = serial ? narrow_least(w) : narrow_form(d, w, columns, k->expert != NULL);
    uint32_t shared = narrow_shared(w, columns, f);
    /* 1024: the system's own of each block. */
    uint32_t blocks =
        (one && !serial) || f.deep ? 1 : MIN_OF(d->shared_unit / (shared + CUDA_STATIC_SHARED + 1024), 2u);
    uint32_t batches = sorted ? groups_max(w, k->count, columns) : DIV_UP(k->count, columns);
    uint32_t panels = DIV_UP(w->n, CUDA_PANEL);
    uint32_t work = one ? DIV_UP(panels, f.warps) : panels / (k->glu ? 2 : 1);
    /* Blocks of several panels read a group's inputs less often. */
    if (sorted)
        work =
            MIN_OF(work, DIV_UP(SORTED_ROUNDS * MAX_OF(blocks, 1u) * d->units, MIN_OF(k->count, w->experts)));
    struct cuda_product product = *k;
    product.deep = f.deep;
    ASSERT(shared <= d->shared_max);
    cuda_run_product(
        c, serial ? CUDA_KERNEL_serial16 + index_of(w) : kernels[index_of(w)][one],
        (struct cuda_grid){MIN_OF(work, MAX_OF(blocks, 1u) * d->units), batches, 1, 32 * f.warps, shared},
        &product);
    c->lets_beside = k->beside;
}

/* Blocks of a kernel by wgmma that walk through so many tiles, in clusters of `down`; dynamic shared memory
 * in `room`. */
static struct cuda_grid walk_grid(const struct cuda_device *d, const struct weight *w, struct cuda_tiles *t,
                                  uint32_t columns, uint32_t tiles, uint32_t down, uint32_t room)
{
    const bool small = t->scales != NULL;
    uint32_t weights = CUDA_TILE_ROWS / CUDA_PANEL * (128u * (small ? 16 : w->bits) + side_bytes(w));
    uint32_t stage = ROUND_UP(weights + columns * 2 * CUDA_UNIT, 1024u);
    t->stages = MIN_OF((room - 1024) / stage, CUDA_WIDE_STAGES);
    ASSERT(t->stages >= 2);
    return (struct cuda_grid){MIN_OF(tiles, d->units / down), down, 1, CUDA_WIDE_THREADS,
                              t->stages * stage + 1024};
}

/* Returns the number of clusters' tiles, with so many columns each. */
static uint32_t wide_tiles(const struct weight *w, const struct cuda_tiles *t, uint32_t columns)
{
    uint32_t rows = CUDA_WIDE_DOWN * (t->glu ? CUDA_TILE_ROWS / 2 : CUDA_TILE_ROWS);
    return DIV_UP(t->glu ? w->n / 2 : w->n, rows) * DIV_UP(t->count, columns);
}

/* About what a tile takes, in clocks of a unit: tensor cores bind, or what a multiprocessor reads of L2. */
static uint64_t wide_clocks(const struct weight *w, bool small, uint32_t columns)
{
    return CUDA_WIDE_FIXED / DIV_UP(w->k, small ? CUDA_SMALL_UNIT : CUDA_UNIT) +
           MAX_OF(4 * columns, (1024u * (small ? 16 : w->bits) + 64 * columns) / CUDA_WIDE_L2);
}

/* The columns of a tile that take the least time. */
static uint32_t wide_columns(const struct cuda_device *d, const struct weight *w, const struct cuda_tiles *t)
{
    uint32_t most = has_one_chain(w) ? CUDA_WIDE_COLUMNS_1 : CUDA_WIDE_COLUMNS_8, best = most;
    uint64_t least = UINT64_MAX;
    for (uint32_t columns = most; columns >= 64; columns /= 2) {
        uint64_t rounds = DIV_UP(wide_tiles(w, t, columns), MAX_OF(d->units / CUDA_WIDE_DOWN, 1u));
        const uint64_t clocks = rounds * wide_clocks(w, t->scales != NULL, columns);
        if (clocks < least) {
            least = clocks;
            best = columns;
        }
    }
    return best;
}

static void run_wide(struct cuda *c, const struct weight *w, struct cuda_tiles *t)
{
    static const enum cuda_kernel kernels[4][2] = {{CUDA_KERNEL_wide16_8, CUDA_KERNEL_wide16_1},
                                                   {CUDA_KERNEL_wide8_8, CUDA_KERNEL_wide8_1},
                                                   {CUDA_KERNEL_wide4_8, CUDA_KERNEL_wide4_1},
                                                   {CUDA_KERNEL_wide_small_8, CUDA_KERNEL_wide_small_1}};
    const struct cuda_device *d = c->device;
    uint32_t glu = t->glu ? CUDA_WIDE_GLU_BYTES : 0;
    t->columns = wide_columns(d, w, t);
    struct cuda_grid grid = walk_grid(d, w, t, has_one_chain(w) ? CUDA_WIDE_COLUMNS_1 : CUDA_WIDE_COLUMNS_8,
                                      wide_tiles(w, t, t->columns), CUDA_WIDE_DOWN, d->shared_max - glu);
    grid.shared_bytes += glu;
    cuda_run_product(c, kernels[t->scales ? 3 : index_of(w)][has_one_chain(w)], grid, t);
}

/* Products of experts' columns. */
static void run_walk(struct cuda *c, const struct weight *w, struct cuda_tiles *t)
{
    static const enum cuda_kernel kernels[3] = {CUDA_KERNEL_walk16, CUDA_KERNEL_walk8, CUDA_KERNEL_walk4};
    const struct cuda_device *d = c->device;
    uint32_t glu = t->glu ? CUDA_WALK_GLU_BYTES : 0;
    uint32_t tiles = groups_max(w, t->count, CUDA_TILE_COLUMNS) * DIV_UP(w->n, CUDA_TILE_ROWS);
    struct cuda_grid grid = walk_grid(d, w, t, CUDA_TILE_COLUMNS, tiles, 1, d->shared_max - 1024 - glu);
    grid.shared_bytes += glu;
    cuda_run_product(c, kernels[index_of(w)], grid, t);
}

struct cuda_grid cuda_few_grid(const struct cuda_device *d, struct cuda_tiles *t, bool one)
{
    const bool small = t->scales != NULL;
    const uint32_t groups = one ? CUDA_FEW_GROUPS_1 : CUDA_FEW_GROUPS_8, bits = small ? 16 : t->w.bits;
    const uint32_t sides = t->w.bits == 16 ? 0
                                           : MAX_OF(CUDA_UNIT / t->w.group, 1u) * CUDA_PANEL *
                                                 (t->w.qparams == CUDA_F32 ? 8 : 4);
    const uint32_t stage = 4 * groups * CUDA_FEW_UNITS(bits) * (128 * bits + sides);
    t->columns = small && t->count <= 16            ? 16
                 : t->count <= 32                   ? 32
                 : t->count <= 64 || (small && one) ? 64
                                                    : 128;
    const uint32_t items =
        DIV_UP(t->w.n, 64 * groups) * DIV_UP(t->count, t->columns) * (one ? 1 : CUDA_CHAINS);
    const uint32_t rest = 1024 + CUDA_FEW_INPUTS(t->columns) * t->columns * 2 * CUDA_UNIT +
                          (one && t->glu ? CUDA_FEW_GLU_BYTES(t->columns) : 0);
    t->stages = MIN_OF((d->shared_max - rest) / stage, CUDA_FEW_STAGES);
    ASSERT(t->stages > 0);
    return (struct cuda_grid){MIN_OF(items, d->units), 1, 1, 128 * (groups + 1), rest + t->stages * stage};
}

/* Whether the kernel for few columns takes them. With 8 chains their sums have room, and beyond 128 columns
 * only codes of 4 bits are so few bytes that L2 may bring them twice. */
static bool takes_few(const struct weight *w, bool small, uint32_t count)
{
    const uint32_t columns = count <= 64 ? 64 : ROUND_UP(count, 128u);
    const uint32_t most = small ? 128 : CUDA_FEW_MOST;
    if (count > most || has_one_chain(w))
        return count <= most;
    return (count <= 128 || w->bits == 4) &&
           ROUND_UP(w->n, CUDA_TILE_ROWS) * (uint64_t)CUDA_FEW_ROW_BYTES(columns) <= CUDA_PARTS_BYTES;
}

static void run_few(struct cuda *c, const struct weight *w, struct cuda_tiles *t)
{
    static const enum cuda_kernel kernels[4][2] = {{CUDA_KERNEL_few16_8, CUDA_KERNEL_few16_1},
                                                   {CUDA_KERNEL_few8_8, CUDA_KERNEL_few8_1},
                                                   {CUDA_KERNEL_few4_8, CUDA_KERNEL_few4_1},
                                                   {CUDA_KERNEL_few_small_8, CUDA_KERNEL_few_small_1}};
    const bool one = has_one_chain(w);
    const struct cuda_grid grid = cuda_few_grid(c->device, t, one);
    t->parts = c->parts;
    t->meet = c->meet;
    cuda_run_product(c, kernels[t->scales ? 3 : index_of(w)][one], grid, t);
}

/* A block for each of grid.x and grid.y. */
static void run_tiles(struct cuda *c, const struct weight *w, struct cuda_tiles *t, struct cuda_grid grid)
{
    static const enum cuda_kernel kernels[3][2] = {{CUDA_KERNEL_tiles16_8, CUDA_KERNEL_tiles16_1},
                                                   {CUDA_KERNEL_tiles8_8, CUDA_KERNEL_tiles8_1},
                                                   {CUDA_KERNEL_tiles4_8, CUDA_KERNEL_tiles4_1}};
    uint32_t stage =
        CUDA_TILE_ROWS / CUDA_PANEL * (128u * w->bits + side_bytes(w)) + CUDA_TILE_COLUMNS * 2 * CUDA_UNIT;
    t->stages = 4 * stage <= c->device->shared_max ? 4 : 2;
    grid.z = 1;
    grid.threads = CUDA_THREADS;
    grid.shared_bytes = t->stages * stage;
    cuda_run_product(c, kernels[index_of(w)][has_one_chain(w)], grid, t);
}

/* Rows [from, from + count) of x become bf16; at most `room` rows. */
static struct cuda_rounded round_rows(struct cuda *c, const struct weight *w, struct cuda_rows x,
                                      uint32_t from, uint32_t count, uint32_t room)
{
    struct cuda_round r = {x, {c->rounded[c->rounded_turn], room, 0}, DIV_UP(w->k, CUDA_UNIT)};
    ASSERT(count <= room);
    r.x.width = w->k;
    r.x.at += (uint64_t)from * x.stride;
    cuda_run_product(c, CUDA_KERNEL_round, cuda_by_row(count), &r);
    c->rounded_of.width = 0;
    return r.to;
}

/* Rows of a product's inputs as bf16 that there is room for. */
static uint32_t rounded_room(const struct cuda *c, const struct weight *w)
{
    return (uint32_t)(c->rounded_bytes / (2 * ROUND_UP(w->k, CUDA_UNIT)));
}

#define QUANTISE_THREADS 512u

/* Rows of x become small floats. */
static void quantise_rows(struct cuda *c, const struct weight *w, struct cuda_tiles *t)
{
    struct cuda_quantise q = {.x = t->x,
                              .to = c->small,
                              .scales = (float *)(void *)(c->small + (uint64_t)t->count * w->k),
                              .rows = t->count,
                              .units = w->k / CUDA_SMALL_UNIT};
    cuda_run_product(c, CUDA_KERNEL_quantise, (struct cuda_grid){t->count, 1, 1, QUANTISE_THREADS, 0}, &q);
    t->x = (struct cuda_rounded){(uint16_t *)(void *)q.to, t->count, 0};
    t->scales = q.scales;
}

static bool takes_small(const struct cuda *c, const struct weight *w)
{
    return w->mode == COMPUTE_FP8 && c->device->wide;
}

/* Columns of each expert. */
static void launch_sorted(struct cuda *c, const struct weight *w, const struct cuda_product *k)
{
    struct cuda_tiles t = {.w = k->w,
                           .x = k->rounded,
                           .count = k->count,
                           .y = k->y,
                           .bias = k->bias,
                           .glu = k->glu,
                           .y_rounded = k->y_rounded,
                           .sorted = k->sorted,
                           .x_div = k->x_div,
                           .bias_step = k->bias_step};
    if (!t.x.at)
        t.x = round_rows(c, w, k->x, 0, k->count / k->x_div, rounded_room(c, w));
    if (takes_experts(c, w, c->sorted_by))
        launch_experts(c, w, &t);
    else if (c->device->wide && !has_one_chain(w))
        run_walk(c, w, &t);
    else
        run_tiles(c, w, &t,
                  (struct cuda_grid){.x = DIV_UP(w->n, CUDA_TILE_ROWS),
                                     .y = groups_max(w, k->count, CUDA_TILE_COLUMNS)});
}

/* Inputs that are not there as bf16 become it, as many rows at a time as there is room for. */
static void launch_tiles(struct cuda *c, const struct weight *w, const struct cuda_product *k)
{
    const bool small = takes_small(c, w);
    uint32_t room = rounded_room(c, w), most = k->rounded.at && !small ? k->count : room;
    ASSERT(most > 0);
    for (uint32_t from = 0; from < k->count; from += most) {
        struct cuda_tiles t = {.w = k->w,
                               .x = k->rounded,
                               .count = MIN_OF(most, k->count - from),
                               .y = k->y,
                               .bias = k->bias,
                               .glu = k->glu,
                               .y_rounded = k->y_rounded};
        t.y.at += (uint64_t)from * k->y.stride;
        t.x.first += from;
        t.y_rounded.first += from;
        if (!k->rounded.at)
            t.x = round_rows(c, w, k->x, from, t.count, room);
        if (small)
            quantise_rows(c, w, &t);
        if (!c->device->wide || t.x.first % 8 != 0)
            run_tiles(c, w, &t,
                      (struct cuda_grid){.x = DIV_UP(t.count, CUDA_TILE_COLUMNS),
                                         .y = DIV_UP(w->n, CUDA_TILE_ROWS)});
        else if (takes_few(w, small, t.count))
            run_few(c, w, &t);
        else
            run_wide(c, w, &t);
    }
}

bool cuda_is_narrow(const struct cuda *c, const struct weight *w, uint32_t count)
{
    return !takes_small(c, w) && count <= CUDA_NARROW_COLUMNS &&
           narrow_shared(w, count, narrow_least(w)) <= c->device->shared_max;
}

bool cuda_takes_glu(const struct cuda *c, const struct weight *w, uint32_t count)
{
    if (w->form != CUDA_FRAGMENTS)
        return false;
    if (!has_one_chain(w) && cuda_is_narrow(c, w, count))
        return w->n % (2 * CUDA_PANEL) == 0;
    return w->n % CUDA_TILE_ROWS == 0 && (cuda_is_narrow(c, w, count) || c->device->wide);
}

bool cuda_takes_experts_glu(const struct cuda *c, const struct weight *w, uint32_t pairs)
{
    uint32_t columns = w->form == CUDA_FRAGMENTS ? cuda_expert_columns(c, w, pairs) : 0;
    if (columns == 1)
        return !has_one_chain(w) && !has_short_chains(w) && w->n % (2 * CUDA_PANEL) == 0;
    if (columns > 0 && takes_experts(c, w, columns))
        return w->n % (2 * CUDA_PANEL) == 0;
    return columns == CUDA_TILE_COLUMNS && c->device->wide && !has_one_chain(w) && w->n % CUDA_TILE_ROWS == 0;
}

bool cuda_takes_add(const struct cuda *c, const struct weight *w, uint32_t count)
{
    return w->form == CUDA_FRAGMENTS && !has_one_chain(w) && cuda_is_narrow(c, w, count);
}

uint32_t cuda_expert_columns(const struct cuda *c, const struct weight *w, uint32_t pairs)
{
    uint32_t columns = pairs > 4 * w->experts ? CUDA_NARROW_COLUMNS : CUDA_NARROW_COLUMNS / 2;
    if (c->step.tokens == 1)
        return 1;
    return pairs <= CUDA_NARROW_COLUMNS * w->experts &&
                   narrow_shared(w, columns, narrow_least(w)) <= c->device->shared_max
               ? columns
               : CUDA_TILE_COLUMNS;
}

void cuda_multiply_fragments(struct cuda *c, const struct weight *w, const struct cuda_product *k)
{
    if (k->sorted.order && (c->sorted_by == CUDA_TILE_COLUMNS || takes_experts(c, w, c->sorted_by)))
        launch_sorted(c, w, k);
    else if (k->expert || cuda_is_narrow(c, w, k->count))
        launch_narrow(c, w, k);
    else
        launch_tiles(c, w, k);
}
