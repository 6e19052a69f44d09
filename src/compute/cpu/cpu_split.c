/* cpu_split.c - the ways in which rows go to the workers. */
#include "compute/cpu/cpu.h"

void cpu_run(struct cpu *c, workers_fn *fn, void *arg, uint32_t tiles)
{
    if (tiles == 1)
        fn(arg, 0, 0);
    else if (tiles > 1)
        workers_run(c->workers, fn, arg, tiles);
}

struct row_stage {
    struct cpu *cpu;
    cpu_row_fn *fn;
    const void *arg;
    uint32_t count, block;
};

static void row_tile(void *arg, uint32_t tile, uint32_t worker)
{
    const struct row_stage *st = arg;
    (void)worker;
    uint32_t from = tile * st->block, to = MIN_OF(from + st->block, st->count);
    for (uint32_t i = from; i < to; i++)
        st->fn(st->cpu, st->arg, i);
}

/* Fewer values than these take less time than a barrier. The first limit is for one token, whose parts would
 * go to several workers. The second is for several tokens: one worker has them in its cache, others would
 * have to fetch them. */
#define VALUES_FEW        4096u
#define VALUES_FEW_TOKENS 16384u

void cpu_each(struct cpu *c, cpu_row_fn *fn, const void *arg, uint32_t count, uint32_t values)
{
    /* Four tiles per worker balance the load; more of them cost more than they gain. */
    uint32_t tiles_wanted = 4 * workers_count(c->workers);
    if ((uint64_t)count * values < VALUES_FEW_TOKENS)
        tiles_wanted = 1;
    struct row_stage st = {c, fn, arg, count, MAX_OF(DIV_UP(count, tiles_wanted), 1)};
    cpu_run(c, row_tile, &st, DIV_UP(count, st.block));
}

void cpu_each_token(struct cpu *c, cpu_row_fn *fn, const void *arg, uint32_t values)
{
    cpu_each(c, fn, arg, c->tokens, values);
}

struct part_stage {
    struct cpu *cpu;
    cpu_part_fn *fn;
    const void *arg;
    uint32_t width, part, parts;
};

static void part_tile(void *arg, uint32_t tile, uint32_t worker)
{
    const struct part_stage *st = arg;
    (void)worker;
    uint32_t from = tile % st->parts * st->part;
    st->fn(st->cpu, st->arg, tile / st->parts, from, MIN_OF(from + st->part, st->width));
}

struct whole_rows {
    cpu_part_fn *fn;
    const void *arg;
    uint32_t width;
};

static void whole_row(struct cpu *c, const void *arg, uint32_t t)
{
    const struct whole_rows *w = arg;
    w->fn(c, w->arg, t, 0, w->width);
}

void cpu_each_part(struct cpu *c, cpu_part_fn *fn, const void *arg, uint32_t width)
{
    uint32_t workers = workers_count(c->workers);
    if (c->tokens >= workers || c->tokens * width <= VALUES_FEW) {
        struct whole_rows w = {fn, arg, width};
        cpu_each_token(c, whole_row, &w, width);
        return;
    }
    struct part_stage st = {c, fn, arg, width, ROUND_UP(DIV_UP(width, DIV_UP(workers, c->tokens)), 128u), 0};
    st.parts = DIV_UP(width, st.part);
    cpu_run(c, part_tile, &st, c->tokens * st.parts);
}
