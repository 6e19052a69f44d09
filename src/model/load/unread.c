/* unread.c - a walk over the names of tensors that the binder did not find.
 *
 * Directories of safetensors keep much that is of no use to the text model: encoders of images and sound,
 * buffers, factors of caches. Only their layers are counted. A GGUF file has what its architecture needs, and
 * llama.cpp refuses any other tensor. Layers of an MTP head may remain unread in both. */
#include "model/load/unread.h"

#include "model/family/family.h"
#include "model/load/binder.h"

#include "base/check.h"
#include "base/none.h"
#include "tensor/tensor_naming.h"
#include "weights/checkpoint.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Tensors that say nothing about results: read as metadata, or factors of inputs for integer kernels. */
static bool is_of_no_use(const char *name)
{
    static const char *const whole[] = {"rope_freqs.weight", "rope_factors_long.weight",
                                        "rope_factors_short.weight"};
    static const char *const ends[] = {".input_scale", ".attn_rot_embd.weight"};
    for (size_t i = 0; i < COUNT_OF(whole); i++)
        if (strcmp(name, whole[i]) == 0)
            return true;
    for (size_t i = 0; i < COUNT_OF(ends); i++)
        if (slice_ends(slice_of(name), slice_of(ends[i])))
            return true;
    /* Encoders of images and sound, and classifiers, whose matrices vector_head.c reads. */
    return slice_starts(slice_of(name), SLICE("v.")) || slice_starts(slice_of(name), SLICE("mm.")) ||
           slice_starts(slice_of(name), SLICE("a.")) || slice_starts(slice_of(name), SLICE("cls."));
}

/* Writes what stands before a layer's number. */
static void layers_head(const struct binder *b, char ret[BINDER_PATH_MAX])
{
    const char *layers = b->config->naming ? b->config->naming->layers : b->config->family->layers;
    snprintf(ret, BINDER_PATH_MAX, "%s%s.", b->prefix, layers ? layers : "layers");
}

/* The tensor belongs to a layer of the text model with this number. */
static bool is_in_layer(const char *name, const char *head, uint32_t *layer)
{
    size_t len = strlen(head);
    char *end;
    if (strncmp(name, head, len) != 0 || name[len] < '0' || name[len] > '9')
        return false;
    unsigned long n = strtoul(name + len, &end, 10);
    *layer = n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
    return *end == '.';
}

static bool is_mtp_layer(const struct binder *b, const char *head, uint32_t layer)
{
    static const char *const marks[] = {"nextn.enorm.weight", "nextn.eh_proj.weight", "enorm.weight",
                                        "eh_proj.weight"};
    char name[BINDER_PATH_MAX + 32];
    struct tensor t;
    for (size_t i = 0; i < COUNT_OF(marks); i++) {
        snprintf(name, sizeof(name), "%s%u.%s", head, layer, marks[i]);
        if (checkpoint_find(b->checkpoint, name, &t))
            return true;
    }
    return false;
}

/* Keys and values of a layer that reads those of another one. */
static bool is_shared(const struct config *c, const char *name, uint32_t layer)
{
    static const enum tensor_role roles[] = {ROLE_K, ROLE_V, ROLE_K_NORM};
    char end[64];
    for (size_t i = 0; c->layer[layer].kv_from != NONE && i < COUNT_OF(roles); i++) {
        snprintf(end, sizeof(end), ".%s.weight", tensor_naming_of(c->naming, roles[i]));
        if (slice_ends(slice_of(name), slice_of(end)))
            return true;
    }
    return false;
}

static bool is_missed(const struct binder *b, const char *head, const char *name, bool *beyond)
{
    uint32_t layer = 0;
    const bool inside = is_in_layer(name, head, &layer);
    *beyond = inside && layer >= b->config->layers;
    if (*beyond)
        return !is_mtp_layer(b, head, layer);
    return b->config->naming && !is_of_no_use(name) && !(inside && is_shared(b->config, name, layer));
}

int unread_check(const struct binder *b, struct err *e)
{
    const struct checkpoint *c = b->checkpoint;
    char head[BINDER_PATH_MAX];
    const char *first = NULL;
    bool beyond = false, of_first = false;
    uint32_t count = 0;
    layers_head(b, head);
    for (uint32_t i = 0; i < checkpoint_count(c); i++) {
        if (b->found[i] || !is_missed(b, head, checkpoint_name(c, i), &beyond))
            continue;
        if (count++ == 0) {
            first = checkpoint_name(c, i);
            of_first = beyond;
        }
    }
    if (count == 0)
        return 0;
    if (of_first)
        return err_set(e, -EINVAL,
                       "%s: tensor %s (%u such in all) is of a layer beyond the configuration's %u",
                       checkpoint_file_of(c, first), first, count, b->config->layers);
    return err_set(e, -ENOTSUP,
                   "%s: tensor %s (%u such in all) is not read, so that answers of %s would be wrong",
                   checkpoint_file_of(c, first), first, count, b->config->family_name);
}
