/* cpu.h - the CPU backend's workspace, and the ways work is split among its files.
 *
 * Work goes to the workers in tiles of outputs. Each function below that runs tiles is one barrier (a single
 * tile runs without). Between barriers a tile only writes what it owns. Engine thread only; the tiles run on
 * the workers. */
#ifndef PLATEAU_COMPUTE_CPU_H
#define PLATEAU_COMPUTE_CPU_H

#include "compute/backend.h"
#include "compute/cpu/cpu_device.h"
#include "compute/ops.h"
#include "compute/weight.h"

#include "kernel/kern.h"

#include "base/check.h"
#include "kernel/matrix.h"
#include "kernel/quants.h"
#include "kernel/workers.h"
#include "memory/dev.h"

struct batch_seq;
struct cpu_experts;

/* Tokens of one sequence whose absolute positions share position / 16. Attention takes a span as a block of
 * queries. Two spans never write into the same cache line of a page. */
#define CPU_SPAN_TOKENS 16
struct cpu_span {
    uint32_t seq, column, position, count;
};

/* Rows of floats. In a row that products read the group sums of its first values follow, then the quantised
 * rows of these. */
struct cpu_array {
    float *base;
    size_t stride, sums_at, quants_at; /* floats */
    enum array_rows rows;
};

/* Columns of a stack's heads, of `count` rows: head i reads x + i * x_step, and writes y + i * y_step. */
struct cpu_heads {
    uint32_t heads; /* 0: the product is of one matrix, with kern_columns */
    const float *x;
    float *y;
    size_t x_stride, y_stride; /* from one row to the next */
    size_t x_step, y_step;
};
/* The longest input of a head. */
#define CPU_HEAD_INPUT_MAX 1024

/* One product with a matrix or a stack of heads, cut into tiles. */
struct cpu_product {
    struct matrix matrix;
    struct kern_columns columns; /* the columns; of heads the count alone */
    const void *const *quants;   /* the columns' rows, quantised or in BF16; NULL: a product in f32 */
    struct cpu_heads heads;
    const float *bias;     /* bias of the matrix's rows; NULL: none */
    const uint32_t *pairs; /* pairs of an expert's columns; NULL: column t is token t */
    bool activate;         /* the matrix is a gate above the other factor */
    uint32_t panels;       /* that are cut into tiles: all, or the gate's */
    uint32_t tile_begin, panels_step, panels_least, columns_step, column_tiles, head_tiles;
};

/* Column pointers of the products in a list. */
struct cpu_columns {
    const float **x;
    const float **xsum[CPU_GROUP_SIZES]; /* by group size */
    const void **quants[CPU_QUANTS_SIZES];
    float **y[PROJECTION_PARTS_MAX];
    uint32_t used;
};

/* Limits of drafting: panels of the head at a time, and sequences. */
#define CPU_DRAFT_PANELS  16
#define CPU_DRAFT_LOGITS  (CPU_DRAFT_PANELS * MATRIX_PANEL)
#define CPU_DRAFT_COLUMNS 16
#define CPU_QUERIES_MAX   64
/* Where workers share out a sequence's keys: tiles of attention per worker, and as many as these where each
 * has several segments; results of segments per worker; queries that a tile copies. */
#define CPU_ATTEND_TILES    4
#define CPU_ATTEND_MORE     16
#define CPU_ATTEND_SEGMENTS 4
#define CPU_ATTEND_PARTS    128
#define CPU_ATTEND_COPIES   16

struct cpu {
    struct compute compute; /* first */
    /* Constant after cpu_open. */
    const struct compute_shape *shape;
    const struct kern_ops *ops;
    struct workers *workers;
    uint64_t flip; /* see cpu_device.h */
    uint32_t tokens_max, seqs_max, logits_max, products_max;
    unsigned sums;             /* compute_opts.sums */
    uint32_t value_bytes;      /* bytes of a quantised row's value: 1 or 2 */
    uint32_t attention_floats; /* KERN_ATTN_SCRATCH, or KERN_ATTN_SCRATCH_V_IN_K where a layer needs it */
    uint32_t query_copies_floats;
    struct cpu_array arrays[COMPUTE_ARRAYS_MAX];
    /* The step. */
    const struct batch *in;
    uint32_t tokens, span_count;
    bool append_due; /* cpu_append left its work to the cpu_attend that follows */
    /* Workspace. */
    struct cpu_span *spans;       /* [tokens] */
    struct cpu_columns columns;   /* [OP_PRODUCTS_MAX * tokens] each */
    struct cpu_product *products; /* [products_max] */
    /* Experts: a pair is (token, rank), at token * top_k + rank. */
    uint32_t *pair_expert, *pair_order; /* [pairs]; pairs sorted by expert */
    uint32_t *expert_begin;             /* [experts + 1] into pair_order */
    float *pair_weight, *shared_gate;   /* [pairs], [tokens] */
    const float **pair_x, **pair_sums;  /* [pairs], in the order of the sort */
    const void **pair_quants;
    float **pair_y;
    struct cpu_experts *experts;   /* experts of a device, in the machine's memory; NULL: none */
    struct draft_best *draft_best; /* [seqs][cpu_draft_tiles_max] */
    /* Per worker. */
    float *attention_scratch;   /* [workers][attention_floats] */
    struct kern_query *queries; /* [workers][CPU_QUERIES_MAX] */
    float *query_copies;        /* [workers][query_copies_floats] */
    float *recurrent_scratch;   /* [workers], the larger of KERN_DELTA_SCRATCH and KERN_SSM_SCRATCH */
    float *draft_logits;        /* [workers][CPU_DRAFT_COLUMNS][CPU_DRAFT_LOGITS] */
    /* Shared by all workers. */
    float *attention_parts;         /* [workers * CPU_ATTEND_PARTS] results of segments */
    float *attention_sums;          /* [workers * CPU_ATTEND_PARTS] queries: maximum and sum */
    _Atomic uint32_t *ranges_ended; /* [workers * CPU_ATTEND_TILES]: of a span's head; 0 between runs */
};

static inline struct cpu *cpu_of(struct compute *c)
{
    return (struct cpu *)c;
}

/* ---- rows ---- */

/* Floats of group sums of n values, of the sizes in `sums` smaller than `group`: the offset of that size. */
static inline uint32_t cpu_sums_offset(unsigned sums, uint32_t n, uint32_t group)
{
    uint32_t floats = 0;
    for (uint32_t size = CPU_GROUP_MIN; size < group; size *= 2)
        floats += sums & cpu_sums_flag(size) ? DIV_UP(n, size) : 0;
    return floats;
}
static inline uint32_t cpu_sums_floats(unsigned sums, uint32_t n)
{
    return cpu_sums_offset(sums, n, 2 * CPU_GROUP_MAX);
}

/* Bytes of quantised rows of n values, of the groups in `sums` smaller than `group`: the offset of that
 * size. */
static inline size_t cpu_quants_offset(unsigned sums, uint32_t n, uint32_t group)
{
    size_t bytes = 0;
    for (uint32_t size = CPU_GROUP_MIN; size < group; size *= 2) {
        const struct quants q = {ROUND_UP(n, size), size, 2};
        size_t row = size == CPU_BF16_GROUP ? ROUND_UP((size_t)n, (size_t)32) * 2 : quants_bytes(&q);
        bytes += sums & cpu_quants_flag(size) ? row : 0;
    }
    return bytes;
}
static inline uint32_t cpu_quants_floats(unsigned sums, uint32_t n)
{
    return (uint32_t)(cpu_quants_offset(sums, n, 2 * CPU_BF16_GROUP) / sizeof(float));
}

/* Floats from one row to the next, for at least n: whole cache lines, and not a multiple of 1 KiB. Otherwise
 * a product's columns would share a few sets of the first cache and evict each other. */
static inline uint32_t cpu_row_stride(uint32_t n)
{
    n = ROUND_UP(n, 16u);
    return n % 256 == 0 ? n + 16 : n;
}

/* Where the sums of a row of `width` floats begin. */
static inline uint32_t cpu_sums_at(uint32_t width)
{
    return ROUND_UP(width, 16u);
}

/* ---- addresses ---- */

static inline void *cpu_memory(const struct cpu *c, dev_ptr p)
{
    return dev_is_null(p) ? NULL : (void *)(uintptr_t)(p.at ^ c->flip);
}
static inline const float *cpu_floats(const struct cpu *c, dev_ptr p)
{
    return cpu_memory(c, p);
}
/* A product of rows that are quantised or in BF16; of `columns` the results are used. */
static inline void cpu_rounded_matmul(const struct cpu *c, const struct matrix *m, const void *const *quants,
                                      const struct kern_columns *columns, uint32_t panel_begin,
                                      uint32_t panel_end)
{
    if (m->form == MATRIX_PAIRS) {
        const struct kern_bf16_columns of = {columns->count, (const uint16_t *const *)quants, columns->y};
        c->ops->bf16_matmul(m, &of, panel_begin, panel_end);
    } else {
        const struct kern_int_columns of = {columns->count, c->value_bytes, quants, columns->y};
        c->ops->int_matmul(m, &of, panel_begin, panel_end);
    }
}
static inline struct matrix cpu_matrix(const struct cpu *c, const struct weight *w)
{
    return cpu_weight_matrix(w, c->flip);
}

/* Row `row` of the values. */
static inline float *cpu_row(const struct cpu *c, struct act a, size_t row)
{
    const struct cpu_array *p = &c->arrays[a.array];
    return p->base + row * p->stride + a.from;
}
static inline size_t cpu_stride(const struct cpu *c, struct act a)
{
    return c->arrays[a.array].stride;
}
/* Its sums of groups of that size, and its quantised row (cpu_quants_group). */
static inline float *cpu_sums(const struct cpu *c, struct act a, size_t row, uint32_t group)
{
    const struct cpu_array *p = &c->arrays[a.array];
    ASSERT(a.from == 0 && p->sums_at && c->sums & cpu_sums_flag(group));
    return p->base + row * p->stride + p->sums_at + cpu_sums_offset(c->sums, a.width, group);
}

/* One recurrent layer's part of a state, and its pending tokens; NULL for NONE. */
float *cpu_state(const struct cpu *c, uint32_t state, uint32_t layer);
float *cpu_state_pending(const struct cpu *c, uint32_t state, uint32_t layer);
/* With an MTP head: the hidden state of pending token `index`. */
float *cpu_state_hidden(const struct cpu *c, uint32_t state, uint32_t index);
/* The hidden state of the sequence's token at `position`, in its page. */
float *cpu_page_hidden(const struct cpu *c, const struct batch_seq *seq, uint32_t position);

static inline void *cpu_quants(const struct cpu *c, struct act a, size_t row, uint32_t group)
{
    const struct cpu_array *p = &c->arrays[a.array];
    ASSERT(a.from == 0 && p->quants_at && c->sums & cpu_quants_flag(group));
    return (char *)(p->base + row * p->stride + p->quants_at) + cpu_quants_offset(c->sums, a.width, group);
}

/* The largest group among them, CPU_GROUP_MIN for a row in BF16; 1: none. */
static inline uint32_t cpu_sums_largest(unsigned sums)
{
    uint32_t size = CPU_GROUP_MAX;
    while (size > CPU_GROUP_MIN && !(sums & (cpu_sums_flag(size) | cpu_quants_flag(size))))
        size /= 2;
    return sums != 0 ? size : 1;
}
/* Computes the sums that products need beside row `row`'s values, by `sums` (weight.sums). (cpu_sums.c) */
void cpu_sum(const struct cpu *c, unsigned sums, struct act a, size_t row);
/* As `cpu_sum()`, but of values [from, to): multiples of the largest group, or to is the end. */
void cpu_sum_part(const struct cpu *c, unsigned sums, struct act a, size_t row, uint32_t from, uint32_t to);

/* ---- the convolution of recurrent layers (cpu_conv.c) ---- */

/* A layer's causal convolution. Its last inputs are the first part of a state, and its raw input the first
 * part of a pending token. */
struct cpu_conv {
    uint32_t layer, channels, conv_width;
    dev_ptr weight, bias; /* bias null: none */
    struct act u, y;
    size_t pending_floats; /* floats of a pending token */
    bool linear;           /* no SiLU */
};
/* Channels [from, to) of all of a sequence's tokens. Reads their state_in before it writes state_out, which
 * may be the same state; keeps the inputs where the sequence keeps its tokens pending. */
void cpu_conv_part(const struct cpu *c, const struct cpu_conv *a, const struct batch_seq *seq, uint32_t from,
                   uint32_t to);
/* Linear where exp would change nothing, like the reference. */
float cpu_softplus(float x);
float cpu_sigmoid(float x);

/* ---- splitting (cpu_split.c) ---- */

/* fn(arg, tile, worker) for tile < tiles. */
void cpu_run(struct cpu *c, workers_fn *fn, void *arg, uint32_t tiles);
/* fn for each of `count` rows, on any worker. The caller runs all of them alone when they take less time than
 * a barrier. `values`: values read and written per row, about; one that takes an exponential counts
 * tenfold. */
typedef void cpu_row_fn(struct cpu *c, const void *arg, uint32_t row);
void cpu_each(struct cpu *c, cpu_row_fn *fn, const void *arg, uint32_t count, uint32_t values);
void cpu_each_token(struct cpu *c, cpu_row_fn *fn, const void *arg, uint32_t values);
/* fn for each token's values [0, width), cut at multiples of 128 where there are fewer tokens than
 * workers. */
typedef void cpu_part_fn(struct cpu *c, const void *arg, uint32_t token, uint32_t from, uint32_t to);
void cpu_each_part(struct cpu *c, cpu_part_fn *fn, const void *arg, uint32_t width);

/* Sorts the pairs by their experts. (cpu_moe.c) */
void cpu_sort_pairs(struct cpu *c);
/* out = f(gate) * up, n values each, or f(gate) where up is NULL. out may be gate. */
void cpu_glu_values(const struct cpu *c, enum glu_function f, struct glu_clip clip, float *out,
                    const float *gate, const float *up, uint32_t n);
/* Values [from, to) of a row of tokens or pairs, and what their reader needs beside them. */
void cpu_glu_part(const struct cpu *c, const struct op_glu *a, uint32_t row, uint32_t from, uint32_t to);
/* y = norm(x); y may be x. */
void cpu_norm_row(const struct cpu *c, const struct norm *norm, float *y, const float *x, uint32_t n);
/* Adds token t's residual to h. */
void cpu_add_residual(const struct cpu *c, const struct residual *r, struct act h, uint32_t t);

/* Panels of a tile when drafting: fewer where there would be too few tiles for an even load. */
static inline uint32_t cpu_draft_panels(uint32_t rows, uint32_t workers)
{
    uint32_t all = DIV_UP(rows, MATRIX_PANEL), panels = CPU_DRAFT_PANELS;
    while (panels > 4 && DIV_UP(all, panels) < 2 * workers)
        panels /= 2;
    return panels;
}

/* ---- the operations ---- */

COMPUTE_OPS(COMPUTE_OP_FUNCTION, cpu)
void cpu_project(struct compute *c, const struct op_product *l, uint32_t count); /* cpu_project.c */
void cpu_project_glu(struct compute *c, const struct op_product *p,
                     const struct op_glu *a);                                /* cpu_project.c */
bool cpu_encode(struct compute *c, const struct op_encode *a, uint32_t *at); /* cpu_encode.c */

#endif
