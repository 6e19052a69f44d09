/* cpu_project.c - products, and the activation that follows some of them.
 *
 * Products take tiles of panels x columns. With few columns, every tile has all of them, so a weight is read
 * once. With many, they are cut into blocks, so that a block of activations stays in the cache. A tile of a
 * gate has the same rows of the other factor too, and makes its part of the activation. The cut changes no
 * bit of a result. */
#include "compute/batch.h"
#include "compute/cpu/cpu.h"
#include "compute/shape.h"

/* ---- a list of products ---- */

struct tile_size {
    uint32_t panels, columns;
};

enum { COLUMNS_FEW = 16, COLUMNS_MAX = 64 };

/* With few columns of rounded rows the kernels read a panel at full speed by itself: with 8 of whole numbers,
 * with 4 in BF16. With more they share work among panels: 16 rows were 8 to 20 % slower in tiles of one panel
 * (model_bench with qwen3-0.6b-8bit, 8 and 16 workers). */
static uint32_t panels_least(const struct matrix *m, uint32_t columns, uint32_t step)
{
    const uint32_t streamed = m->form == MATRIX_QUADS ? 8 : m->form == MATRIX_PAIRS ? 4 : 0;
    return columns <= streamed ? 1 : DIV_UP(step, 2u);
}

static uint32_t add_product(struct cpu *c, uint32_t list, const struct matrix *m,
                            const struct kern_columns *columns, const float *bias)
{
    ASSERT(list < c->products_max && c->ops->columns_many <= COLUMNS_MAX);
    const struct kern_ops *ops = c->ops;
    const bool few = columns->count <= COLUMNS_FEW;
    const struct tile_size many =
        m->form == MATRIX_QUADS   ? (struct tile_size){ops->int_panels_many, ops->int_columns_many}
        : m->form == MATRIX_PAIRS ? (struct tile_size){ops->bf16_panels_many, ops->bf16_columns_many}
                                  : (struct tile_size){ops->panels_many, ops->columns_many};
    const uint32_t step = few ? ops->panels_few : many.panels;
    c->products[list] = (struct cpu_product){
        .matrix = *m,
        .columns = *columns,
        .bias = bias,
        .panels = matrix_panels(m),
        .panels_step = step,
        .panels_least = panels_least(m, columns->count, step),
        .columns_step = few ? COLUMNS_FEW : many.columns,
    };
    return list + 1;
}

/* The product that tile belongs to: the last one that begins at or before it. */
static const struct cpu_product *product_of(const struct cpu *c, uint32_t count, uint32_t tile)
{
    uint32_t low = 0, high = count;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (c->products[middle].tile_begin <= tile)
            low = middle;
        else
            high = middle;
    }
    return &c->products[low];
}

struct product_stage {
    struct cpu *cpu;
    uint32_t count;
    const struct op_glu *glu; /* activation of the products with activate; NULL: none has it */
};

static void add_bias(const struct cpu *c, const struct cpu_product *p, const struct kern_columns *columns,
                     uint32_t panel_begin, uint32_t panel_end)
{
    uint32_t from = panel_begin * MATRIX_PANEL, to = MIN_OF(panel_end * MATRIX_PANEL, p->matrix.n);
    for (uint32_t i = 0; i < columns->count; i++)
        c->ops->add(columns->y[i] + from, p->bias + from, to - from);
}

/* The tile of a product: panels and columns, of a stack of one head. */
struct product_part {
    uint32_t head, panel, panel_end, column, count;
};

static void multiply(const struct cpu *c, const struct cpu_product *p, const struct product_part *t)
{
    struct kern_columns columns = {.count = t->count,
                                   .x = p->columns.x + t->column,
                                   .xsum = p->columns.xsum ? p->columns.xsum + t->column : NULL,
                                   .y = p->columns.y + t->column};
    if (p->quants)
        cpu_rounded_matmul(c, &p->matrix, p->quants + t->column, &columns, t->panel, t->panel_end);
    else
        c->ops->matmul(&p->matrix, &columns, t->panel, t->panel_end);
    if (p->bias)
        add_bias(c, p, &columns, t->panel, t->panel_end);
}

/* Group sums are the tile's own: a head is a small part of its row, which begins anywhere. */
static void multiply_head(const struct cpu *c, const struct cpu_product *p, const struct product_part *t)
{
    const struct cpu_heads *h = &p->heads;
    const struct matrix m = matrix_expert(&p->matrix, t->head);
    const float *x[COLUMNS_MAX], *xsum[COLUMNS_MAX];
    float *y[COLUMNS_MAX], sums[COLUMNS_MAX][CPU_HEAD_INPUT_MAX / CPU_GROUP_MIN];
    ASSERT(t->count <= COLUMNS_MAX && m.k <= CPU_HEAD_INPUT_MAX && !matrix_rounds_input(&m));
    for (uint32_t i = 0; i < t->count; i++) {
        size_t row = t->column + i;
        x[i] = h->x + row * h->x_stride + t->head * h->x_step;
        y[i] = h->y + row * h->y_stride + t->head * h->y_step;
        xsum[i] = sums[i];
        if (matrix_needs_sums(&m))
            c->ops->group_sums(sums[i], x[i], m.k, m.group);
    }
    const struct kern_columns columns = {.count = t->count, .x = x, .xsum = xsum, .y = y};
    c->ops->matmul(&m, &columns, t->panel, t->panel_end);
}

/* Computes a tile's rows of the other factor, and the activation of both. */
static void activate(const struct product_stage *st, const struct cpu_product *p, struct product_part t)
{
    const struct cpu *c = st->cpu;
    uint32_t from = t.panel * MATRIX_PANEL, to = t.panel_end * MATRIX_PANEL;
    t.panel += p->panels;
    t.panel_end += p->panels;
    multiply(c, p, &t);
    for (uint32_t i = t.column; i < t.column + t.count; i++)
        cpu_glu_part(c, st->glu, p->pairs ? p->pairs[i] : i, from, to);
}

static void product_tile(void *arg, uint32_t tile, uint32_t worker)
{
    const struct product_stage *st = arg;
    const struct cpu_product *p = product_of(st->cpu, st->count, tile);
    (void)worker;
    uint32_t local = tile - p->tile_begin;
    struct product_part t = {.head = local / p->head_tiles};
    local %= p->head_tiles;
    t.panel = local / p->column_tiles * p->panels_step;
    t.panel_end = MIN_OF(t.panel + p->panels_step, p->panels);
    t.column = local % p->column_tiles * p->columns_step;
    t.count = MIN_OF(p->columns_step, p->columns.count - t.column);
    if (p->heads.heads > 0)
        multiply_head(st->cpu, p, &t);
    else
        multiply(st->cpu, p, &t);
    if (p->activate)
        activate(st, p, t);
}

/* Returns the number of tiles of the list. */
static uint32_t cut_tiles(struct cpu *c, uint32_t count)
{
    uint32_t tiles = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct cpu_product *p = &c->products[i];
        p->tile_begin = tiles;
        p->column_tiles = DIV_UP(p->columns.count, p->columns_step);
        p->head_tiles = p->column_tiles * DIV_UP(p->panels, p->panels_step);
        tiles += p->head_tiles * MAX_OF(p->heads.heads, 1u);
    }
    return tiles;
}

/* Tasks of the caller come first: one of them may take as long as many tiles. */
struct beside_stage {
    struct batch_beside *beside;
    struct product_stage products;
};

static void beside_tile(void *arg, uint32_t tile, uint32_t worker)
{
    struct beside_stage *st = arg;
    if (tile < st->beside->count)
        st->beside->run(st->beside->arg, tile);
    else
        product_tile(&st->products, tile - st->beside->count, worker);
}

static void run_beside(struct cpu *c, struct product_stage products, uint32_t tiles)
{
    struct beside_stage st = {c->in->beside, products};
    cpu_run(c, beside_tile, &st, tiles + st.beside->count);
    st.beside->done = true;
}

/* Whether a tile became smaller. */
static bool halve_tiles(struct cpu *c, uint32_t count)
{
    bool smaller = false;
    for (uint32_t i = 0; i < count; i++) {
        struct cpu_product *p = &c->products[i];
        uint32_t step = ROUND_UP(DIV_UP(p->panels_step, 2u), p->panels_least);
        smaller |= step < p->panels_step;
        p->panels_step = MIN_OF(step, p->panels_step);
    }
    return smaller;
}

/* With fewer tiles a worker the slowest would leave the others without work for long. With few columns of
 * whole numbers they wait for memory, which is not shared out evenly. */
#define TILES_A_WORKER     3u
#define TILES_A_WORKER_FEW 6u

/* `beside`: with the caller's tasks. */
static void run_products(struct cpu *c, uint32_t count, const struct op_glu *glu, bool beside)
{
    uint32_t tiles = cut_tiles(c, count);
    const bool few = c->tokens <= COLUMNS_FEW && count > 0 && c->products[0].matrix.form == MATRIX_QUADS;
    const uint32_t wanted = few ? TILES_A_WORKER_FEW : TILES_A_WORKER;
    while (tiles < wanted * workers_count(c->workers) && halve_tiles(c, count))
        tiles = cut_tiles(c, count);
    struct product_stage st = {c, count, glu};
    if (beside && c->in->beside && !c->in->beside->done)
        run_beside(c, st, tiles);
    else
        cpu_run(c, product_tile, &st, tiles);
}

/* ---- columns ---- */

static uint32_t group_index(uint32_t group)
{
    return (uint32_t)__builtin_ctz(group / CPU_GROUP_MIN);
}

static float *output_row(const struct cpu *c, struct act y, uint32_t row)
{
    return y.array == OP_LOGITS ? c->in->logits + (size_t)row * c->shape->vocab : cpu_row(c, y, row);
}

/* Sets the sums or rows that the product needs beside its columns: those of rows [0, count) of x, from `from`
 * on in the lists. */
static void set_beside(struct cpu *c, struct cpu_product *p, struct act x, uint32_t from, uint32_t count)
{
    const struct matrix *m = &p->matrix;
    if (matrix_needs_sums(m)) {
        const float **sums = c->columns.xsum[group_index(m->group)] + from;
        for (uint32_t t = 0; t < count; t++)
            sums[t] = cpu_sums(c, x, t, m->group);
        p->columns.xsum = sums;
    } else if (matrix_rounds_input(m)) {
        const uint32_t group = cpu_quants_group(m);
        const void **quants = c->columns.quants[group_index(group)] + from;
        for (uint32_t t = 0; t < count; t++)
            quants[t] = cpu_quants(c, x, t, group);
        p->quants = quants;
    }
}

/* A projection of rows [0, count). */
static uint32_t add_rows(struct cpu *c, uint32_t list, const struct op_product *a, uint32_t count)
{
    struct cpu_columns *all = &c->columns;
    const float *bias = cpu_floats(c, a->w->bias);
    uint32_t offset = 0, from = all->used;
    all->used += count;
    ASSERT(all->used <= OP_PRODUCTS_MAX * c->tokens_max && a->x.width == a->w->in);
    for (uint32_t t = 0; t < count; t++)
        all->x[from + t] = cpu_row(c, a->x, t);
    for (uint32_t i = 0; i < a->w->part_count; i++) {
        const struct matrix m = cpu_matrix(c, &a->w->parts[i]);
        struct kern_columns columns = {.count = count, .x = all->x + from, .y = all->y[i] + from};
        for (uint32_t t = 0; t < count; t++)
            all->y[i][from + t] = output_row(c, a->y, t) + offset;
        list = add_product(c, list, &m, &columns, bias ? bias + offset : NULL);
        set_beside(c, &c->products[list - 1], a->x, from, count);
        offset += m.n;
    }
    return list;
}

/* A product for every expert that a token chose, of part `part`: the outputs from `offset` on. An expert's
 * matrix is read once per step for all of them. */
static uint32_t add_experts(struct cpu *c, uint32_t list, const struct op_product *a, uint32_t part,
                            uint32_t offset)
{
    const struct matrix stack = cpu_matrix(c, &a->w->parts[part]);
    const float *biases = cpu_floats(c, a->w->bias);
    uint32_t top_k = c->shape->top_k, pairs = c->tokens * top_k;
    bool by_pair = c->arrays[a->x.array].rows == ROWS_PAIRS, affine = matrix_needs_sums(&stack);
    bool rounds = matrix_rounds_input(&stack);
    for (uint32_t i = 0; i < pairs; i++) {
        size_t pair = c->pair_order[i], row = by_pair ? pair : pair / top_k;
        c->pair_x[i] = cpu_row(c, a->x, row);
        c->pair_y[i] = cpu_row(c, a->y, pair) + offset;
        if (affine)
            c->pair_sums[i] = cpu_sums(c, a->x, row, stack.group);
        else if (rounds)
            c->pair_quants[i] = cpu_quants(c, a->x, row, cpu_quants_group(&stack));
    }
    for (uint32_t e = 0; e < c->shape->experts; e++) {
        uint32_t from = c->expert_begin[e], to = c->expert_begin[e + 1];
        if (from == to)
            continue;
        struct matrix m = matrix_expert(&stack, e);
        struct kern_columns columns = {.count = to - from,
                                       .x = c->pair_x + from,
                                       .xsum = affine ? c->pair_sums + from : NULL,
                                       .y = c->pair_y + from};
        list = add_product(c, list, &m, &columns, biases ? biases + (size_t)e * a->w->out + offset : NULL);
        c->products[list - 1].quants = rounds ? c->pair_quants + from : NULL;
        c->products[list - 1].pairs = c->pair_order + from;
    }
    return list;
}

/* Every head's product with its own matrix, which is read once per step. */
static uint32_t add_heads(struct cpu *c, uint32_t list, const struct op_product *a)
{
    const struct matrix stack = cpu_matrix(c, &a->w->parts[0]);
    const struct kern_columns columns = {.count = c->tokens};
    ASSERT(a->w->part_count == 1 && a->x.width % stack.experts == 0 && a->y.width % stack.experts == 0);
    ASSERT(dev_is_null(a->w->bias));
    list = add_product(c, list, &stack, &columns, NULL);
    c->products[list - 1].heads = (struct cpu_heads){.heads = stack.experts,
                                                     .x = cpu_row(c, a->x, 0),
                                                     .y = cpu_row(c, a->y, 0),
                                                     .x_stride = cpu_stride(c, a->x),
                                                     .y_stride = cpu_stride(c, a->y),
                                                     .x_step = a->x.width / stack.experts,
                                                     .y_step = a->y.width / stack.experts};
    return list;
}

/* Parts of experts that have other forms, one after the other: each takes the lists of pairs anew. */
static void run_expert_parts(struct cpu *c, const struct op_product *a)
{
    uint32_t offset = a->columns == COLUMNS_EXPERTS ? a->w->parts[0].n : 0;
    for (uint32_t part = 1; a->columns == COLUMNS_EXPERTS && part < a->w->part_count; part++) {
        run_products(c, add_experts(c, 0, a, part, offset), NULL, false);
        offset += a->w->parts[part].n;
    }
}

static void sum_outputs(struct cpu *c, const void *arg, uint32_t t)
{
    const struct op_product *a = arg;
    cpu_sum(c, a->reader->sums, a->y, t);
}

static uint32_t add_columns(struct cpu *c, uint32_t list, const struct op_product *a)
{
    if (a->columns == COLUMNS_EXPERTS)
        return add_experts(c, list, a, 0, 0);
    if (a->columns == COLUMNS_HEADS)
        return add_heads(c, list, a);
    return add_rows(c, list, a, a->columns == COLUMNS_LOGITS ? c->in->logit_count : c->tokens);
}

void cpu_project(struct compute *compute, const struct op_product *list, uint32_t count)
{
    struct cpu *c = cpu_of(compute);
    uint32_t products = 0;
    bool logits = false;
    c->columns.used = 0;
    for (uint32_t i = 0; i < count; i++) {
        products = add_columns(c, products, &list[i]);
        logits |= list[i].columns == COLUMNS_LOGITS;
    }
    run_products(c, products, NULL, logits);
    for (uint32_t i = 0; i < count; i++) {
        run_expert_parts(c, &list[i]);
        if (list[i].reader && list[i].reader->sums)
            cpu_each_token(c, sum_outputs, &list[i], list[i].y.width);
    }
}

/* ---- a product and its activation ---- */

/* Panels of the smallest part of an activation whose groups are whole; 0: one matrix with both factors does
 * not give such parts. */
static uint32_t glu_panels(const struct op_product *p, const struct op_glu *a)
{
    uint32_t panels = MAX_OF(cpu_sums_largest(a->reader->sums) / MATRIX_PANEL, 1u);
    bool both = !a->plain && a->up.width == 0 && p->w->part_count == 1 && p->w->out == 2 * a->out.width;
    return both && a->out.width % (panels * MATRIX_PANEL) == 0 ? panels : 0;
}

void cpu_project_glu(struct compute *compute, const struct op_product *p, const struct op_glu *a)
{
    struct cpu *c = cpu_of(compute);
    uint32_t least = glu_panels(p, a);
    ASSERT(p->columns == COLUMNS_TOKENS || p->columns == COLUMNS_EXPERTS);
    if (least == 0) {
        cpu_project(compute, p, 1);
        cpu_glu(compute, a);
        return;
    }
    c->columns.used = 0;
    uint32_t count = add_columns(c, 0, p);
    for (uint32_t i = 0; i < count; i++) {
        struct cpu_product *of = &c->products[i];
        of->activate = true;
        of->panels /= 2;
        of->panels_least = ROUND_UP(of->panels_least, least);
        of->panels_step = ROUND_UP(of->panels_step, least);
    }
    run_products(c, count, a, false);
}
