/* cuda_weight.c - weights are the kernels' matrices of the CPU (kernel/matrix.h), packed on the host.
 *
 * Panels are filled in the device's staging memory and go to the device a few at a time. A panel whose first
 * rows came with an earlier call is fetched back. Several threads put panels of their own at once. */
#include "compute/cuda/cuda_args.h"
#include "compute/cuda/cuda_device.h"
#include "compute/weight.h"

#include "base/check.h"
#include "kernel/matrix.h"
#include "tensor/tensor.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(WEIGHT_PANEL == MATRIX_PANEL, "rows lie in the kernels' panels");

struct weight cuda_weight_begin(const struct linear_source *s, uint32_t count, enum compute_mode mode,
                                dev_ptr at)
{
    ASSERT(at.at % 64 == 0 && (mode == COMPUTE_F32 || compute_rounds(mode)));
    if (cuda_takes_fragments(s, count, mode))
        return cuda_fragments_begin(s, count, mode, at);
    const struct matrix m = matrix_begin(s, count, NULL);
    return (struct weight){.n = m.n,
                           .k = m.k,
                           .experts = m.experts,
                           .data = at,
                           .expert_bytes = m.expert_bytes,
                           .mode = COMPUTE_F32,
                           .form = (uint8_t)m.form,
                           .qparams = (uint8_t)m.qparams,
                           .bits = (uint8_t)m.bits,
                           .codes = (uint8_t)m.codes,
                           .biases = (uint8_t)m.bias_kind,
                           .group = m.group,
                           .super = m.super};
}

static struct matrix matrix_of(const struct weight *w, void *data)
{
    return (struct matrix){.form = (enum matrix_form)w->form,
                           .n = w->n,
                           .k = w->k,
                           .experts = 1,
                           .bits = w->bits,
                           .group = w->group,
                           .qparams = (enum matrix_form)w->qparams,
                           .codes = (enum code_map)w->codes,
                           .bias_kind = (enum bias_kind)w->biases,
                           .super = w->super,
                           .data = data,
                           .expert_bytes = (size_t)w->expert_bytes};
}

/* Rows [from, from + count) of `rows` become rows `at` and following; the panels fit in `staging`. */
struct piece {
    uint32_t at, from, count;
};

static void put_piece(struct cuda_device *d, const struct weight *w, const struct piece *p,
                      const struct linear_source *rows, char *staging)
{
    const struct matrix shape = matrix_of(w, staging);
    size_t panel_bytes = matrix_panel_bytes(&shape);
    uint32_t panel = p->at / MATRIX_PANEL, lane = p->at % MATRIX_PANEL;
    uint32_t panels = DIV_UP(lane + p->count, (uint32_t)MATRIX_PANEL);
    dev_ptr to = dev_add(w->data, panel * (uint64_t)panel_bytes);
    struct matrix part = shape;
    part.n = panels * MATRIX_PANEL;
    if (lane > 0)
        (void)domain_get(&d->domain, staging, to, panel_bytes);
    matrix_put_part(&part, lane, rows, p->from, p->count);
    cuda_staging_put(d, to, staging, panels * (uint64_t)panel_bytes);
    cuda_staging_wait(d, staging);
}

/* Panels in staging memory at once: as many as a slot holds, at least one, and no more than the rows take. */
static uint32_t panels_at_once(size_t panel_bytes, uint32_t at, uint32_t count)
{
    uint32_t fit = MAX_OF((uint32_t)(CUDA_STAGING_SLOT / panel_bytes), 1u);
    ASSERT(panel_bytes <= CUDA_STAGING_BYTES);
    return MIN_OF(fit, DIV_UP(at % MATRIX_PANEL + count, (uint32_t)MATRIX_PANEL));
}

static void put_panels(struct cuda_device *d, const struct weight *w, uint32_t at,
                       const struct linear_source *rows)
{
    const struct matrix shape = matrix_of(w, NULL);
    size_t panel_bytes = matrix_panel_bytes(&shape);
    uint32_t count = (uint32_t)rows->out, panels = panels_at_once(panel_bytes, at, count);
    char *staging = cuda_staging_take(d, panels * panel_bytes);
    for (uint32_t done = 0; done < count;) {
        struct piece p = {at + done, done, panels * MATRIX_PANEL - (at + done) % MATRIX_PANEL};
        p.count = MIN_OF(p.count, count - done);
        put_piece(d, w, &p, rows, staging);
        done += p.count;
    }
    cuda_staging_give(d, staging, panels * panel_bytes);
}

/* The panels of m, in staging memory, become fragments of w: `count` rows from row `at` of w on. */
static void repack(struct cuda_device *d, const struct weight *w, const struct matrix *m, uint32_t at,
                   uint32_t count)
{
    const char *staging = m->data;
    dev_ptr to = {d->repacking + (size_t)(staging - d->staging)};
    const struct cuda_repack rows = {.from = {.data = (const uint8_t *)(uintptr_t)to.at,
                                              .n = m->n,
                                              .k = m->k,
                                              .experts = 1,
                                              .form = m->form,
                                              .qparams = m->qparams,
                                              .bits = m->bits,
                                              .group = m->group,
                                              .codes = m->codes,
                                              .biases = m->bias_kind,
                                              .super = m->super},
                                     .panel = at / MATRIX_PANEL,
                                     .lane = at % MATRIX_PANEL,
                                     .count = count};
    pthread_mutex_lock(&d->repacking_lock);
    cuda_staging_put(d, to, staging, matrix_panels(m) * matrix_panel_bytes(m));
    cuda_fragments_put(d, w, &rows);
    pthread_mutex_unlock(&d->repacking_lock);
    cuda_staging_wait(d, staging);
}

/* Panels as they are on the CPU go to the device, which makes fragments of them. */
static void put_fragments(struct cuda_device *d, const struct weight *w, uint32_t at,
                          const struct linear_source *rows)
{
    struct matrix m = matrix_begin(rows, 1, NULL);
    size_t panel_bytes = matrix_panel_bytes(&m);
    uint32_t count = (uint32_t)rows->out, panels = panels_at_once(panel_bytes, at, count);
    char *staging = cuda_staging_take(d, panels * panel_bytes);
    m.data = staging;
    ASSERT(m.k == w->k);
    for (uint32_t done = 0; done < count;) {
        uint32_t lane = (at + done) % MATRIX_PANEL;
        uint32_t some = MIN_OF(panels * MATRIX_PANEL - lane, count - done);
        m.n = ROUND_UP(lane + some, (uint32_t)MATRIX_PANEL);
        if (lane > 0)
            memset(staging, 0, panel_bytes);
        matrix_put_part(&m, lane, rows, done, some);
        repack(d, w, &m, at + done, some);
        done += some;
    }
    cuda_staging_give(d, staging, panels * panel_bytes);
}

void cuda_weight_put(struct device *device, const struct weight *w, uint32_t at,
                     const struct linear_source *rows)
{
    struct cuda_device *d = cuda_device_of(device);
    ASSERT(!rows->transposed);
    if (w->form == CUDA_FRAGMENTS)
        put_fragments(d, w, at, rows);
    else
        put_panels(d, w, at, rows);
}
