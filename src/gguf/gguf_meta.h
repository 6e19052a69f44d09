/* gguf_meta.h - metadata of a GGUF file on their way into the object of a config.json. Inside gguf/ only.
 *
 * The object is read like any config.json, with its bounds and its refusals, so these functions check no
 * bounds. */
#ifndef PLATEAU_GGUF_GGUF_META_H
#define PLATEAU_GGUF_GGUF_META_H

#include "gguf/gguf_head.h"

#include <jansson.h>

struct gguf_arch;
struct gguf_key;

#define GGUF_LAYERS_MAX 1024 /* layers of a list that is made */

struct gguf_meta {
    const struct gguf_head *file;
    const struct gguf_arch *arch;
    json_t *root, *rope; /* rope: its rope_parameters */
    struct err *e;
};

/* The value of a key of the architecture, or NULL. */
const struct gguf_value *gguf_meta_find(const struct gguf_meta *v, const char *key);
/* Its number; 0: absent, or another type. */
uint64_t gguf_meta_number(const struct gguf_meta *v, const char *key);
double gguf_meta_real(const struct gguf_meta *v, const char *key, double absent);
/* A tensor of the first file, or NULL. */
const struct gguf_tensor *gguf_meta_tensor(const struct gguf_meta *v, const char *name);
/* Returns the number of layers without the blocks of an MTP head. */
uint64_t gguf_meta_layers(const struct gguf_meta *v);

json_t *gguf_meta_json(const struct gguf_item *item);
bool gguf_meta_is_zero(const struct gguf_item *item);

/* Takes `value`. 0 or -EINVAL. */
int gguf_meta_set(struct gguf_meta *v, json_t *object, const char *name, json_t *value);
int gguf_meta_set_number(struct gguf_meta *v, const char *name, uint64_t value);
/* An absent key is left out. 0, -EINVAL, -ENOTSUP. */
int gguf_meta_copy(struct gguf_meta *v, const char *key, json_t *object, const char *name);
int gguf_meta_copy_keys(struct gguf_meta *v, const struct gguf_key *keys);

#endif
