/* weight_forms.c - keys while matrices are bound, thousands of them; a name once, at the end. */
#include "model/config/weight_forms.h"

#include "tensor/block_form.h"
#include "tensor/quantise.h"
#include "weights/stored_form.h"

#include <stdio.h>

static struct weight_form_key key_of(const struct linear_source *s)
{
    struct weight_form_key k = {.blocks = s->weight.form, .stored = s->stored};
    if (!s->stored)
        k.dtype = s->weight.dtype;
    if ((!s->affine && !s->stored) || s->weight.form)
        return k;
    k.bits = s->bits;
    k.at_load = s->at_load;
    k.codes = s->codes;
    k.scales = s->scales.dtype;
    k.group = s->stored ? 0 : s->group; /* the kernels' group: a stored scale may be of more columns */
    k.rows = s->stored ? s->scale_rows : 0;
    k.columns = s->stored && (k.rows > 1 || s->scale_columns != s->in) ? s->scale_columns : 0;
    return k;
}

/* Scales of different widths are one form of MLX, whose writer has them as the model's floats. */
static bool is_same(const struct weight_form_key *x, const struct weight_form_key *y)
{
    return x->blocks == y->blocks && x->stored == y->stored && x->dtype == y->dtype && x->codes == y->codes &&
           x->bits == y->bits && x->group == y->group && x->rows == y->rows && x->columns == y->columns &&
           x->at_load == y->at_load && (x->codes == CODES_WHOLE || x->scales == y->scales);
}

void weight_forms_add(struct weight_forms *f, const struct linear_source *s, uint64_t bytes)
{
    const struct weight_form_key key = key_of(s);
    uint32_t i = 0;
    while (i < f->count && !is_same(&f->keys[i], &key))
        i++;
    if (i == WEIGHT_FORMS_MAX)
        return;
    if (i == f->count) {
        f->keys[f->count] = key;
        f->bytes[f->count++] = 0;
    }
    f->bytes[i] += bytes;
}

/* " block 128", " g128", " row" or " tensor": what a stored scale is of. */
static void put_reach(const struct weight_form_key *k, char *ret, size_t bytes_max)
{
    if (k->rows > 1 && k->rows == k->columns)
        snprintf(ret, bytes_max, " block %u", k->rows);
    else if (k->rows > 1)
        snprintf(ret, bytes_max, " block %ux%u", k->rows, k->columns);
    else if (k->rows == 1 && k->columns)
        snprintf(ret, bytes_max, " g%u", k->columns);
    else
        snprintf(ret, bytes_max, "%s", k->rows == 1 ? " row" : " tensor");
}

/* Writers of Hugging Face repositories. */
static void stored_name(const struct weight_form_key *k, char *ret, size_t bytes_max)
{
    char reach[32];
    const char *form = k->stored->name;
    put_reach(k, reach, sizeof(reach));
    if (k->codes == CODES_E2M1)
        snprintf(ret, bytes_max, "%s", k->scales == DTYPE_F8_E4M3 ? "nvfp4" : "mxfp4");
    else if (k->codes == CODES_E4M3)
        snprintf(ret, bytes_max, "fp8 e4m3%s", reach);
    else if (k->stored->layout == STORED_ROWS)
        snprintf(ret, bytes_max, "int%u%s", k->bits, reach);
    else
        snprintf(ret, bytes_max, "%.4s %u bit", form, k->bits); /* "gptq v2" is gptq */
}

static void name_of(const struct weight_form_key *k, char *ret, size_t bytes_max)
{
    if (k->blocks)
        snprintf(ret, bytes_max, "%s", k->blocks->name);
    else if (k->bits == 0)
        snprintf(ret, bytes_max, "%s", dtype_name(k->dtype));
    else if (k->at_load)
        snprintf(ret, bytes_max, "%s g%u from %s", quantise_name(k->bits), k->group, dtype_name(k->dtype));
    else if (k->stored)
        stored_name(k, ret, bytes_max);
    else if (k->codes == CODES_E2M1)
        snprintf(ret, bytes_max, "%s", k->scales == DTYPE_F8_E4M3 ? "nvfp4" : "mxfp4");
    else if (k->codes == CODES_E4M3)
        snprintf(ret, bytes_max, "mxfp8");
    else
        snprintf(ret, bytes_max, "mlx %u bit g%u", k->bits, k->group);
}

void weight_forms_text(const struct weight_forms *f, char ret[WEIGHT_FORMS_BYTES])
{
    char name[32];
    uint32_t most = 0;
    if (f->count == 0) {
        snprintf(ret, WEIGHT_FORMS_BYTES, "no matrices");
        return;
    }
    for (uint32_t i = 1; i < f->count; i++)
        most = f->bytes[i] > f->bytes[most] ? i : most;
    name_of(&f->keys[most], name, sizeof(name));
    if (f->count == 1)
        snprintf(ret, WEIGHT_FORMS_BYTES, "%s", name);
    else
        snprintf(ret, WEIGHT_FORMS_BYTES, "%s and %u %s", name, f->count - 1,
                 f->count == 2 ? "other" : "others");
}
