/* binder_check.c - a tensor is there, and is as a matrix or vector needs it. */
#include "model/load/binder.h"

#include "weights/checkpoint.h"

#include <errno.h>

static int wrong_shape(struct binder *b, const char *name, const struct tensor *t, uint32_t rank,
                       const uint64_t *wanted)
{
    char has[160], wants[160];
    return err_set(b->e, -EINVAL, "%s: tensor %s has shape %s, the configuration wants %s",
                   checkpoint_file_of(b->checkpoint, name), name,
                   tensor_shape_text(t->rank, t->shape, has, sizeof(has)),
                   tensor_shape_text(rank, wanted, wants, sizeof(wants)));
}

int binder_check_shape(struct binder *b, const char *name, const struct tensor *t, uint32_t rank,
                       const uint64_t *wanted)
{
    return tensor_has_shape(t, rank, wanted) ? 0 : wrong_shape(b, name, t, rank, wanted);
}

static bool is_float(const struct tensor *t)
{
    return t->dtype == DTYPE_BF16 || t->dtype == DTYPE_F16 || t->dtype == DTYPE_F32;
}

int binder_check_float(struct binder *b, const char *name, const struct tensor *t)
{
    return is_float(t)
               ? 0
               : err_set(b->e, -ENOTSUP, "%s: tensor %s has dtype %s; supported are BF16, F16 and F32",
                         checkpoint_file_of(b->checkpoint, name), name, tensor_form_name(t));
}

bool binder_find_optional(const struct binder *b, const char *name, struct tensor *ret)
{
    if (!checkpoint_find(b->checkpoint, name, ret))
        return false;
    if (b->found)
        b->found[checkpoint_index(b->checkpoint, name)] = true;
    return true;
}

int binder_find(struct binder *b, const char *name, struct tensor *ret)
{
    return binder_find_optional(b, name, ret)
               ? 0
               : err_set(b->e, -EINVAL, "the checkpoint has no tensor %s", name);
}
