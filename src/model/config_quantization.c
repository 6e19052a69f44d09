/* config_quantization.c - the quantization block of config.json: MLX affine, one global entry and some by
 * module path. */
#include "model/config.h"

#include "model/json_read.h"

#include "base/check.h"

#include <errno.h>
#include <string.h>

static bool bits_ok(uint32_t bits)
{
    return (bits >= 2 && bits <= 6) || bits == 8;
}

static void read_affine(struct json_read *p, struct quantization_entry absent, struct quantization_entry *ret)
{
    const char *mode = json_read_string_or(p, "mode", "affine");
    if (strcmp(mode, "affine") != 0)
        json_read_fail(p, -ENOTSUP, "mode '%.40s' is not supported; affine is", mode);
    ret->bits = json_read_u32_or(p, "bits", 2, 8, absent.bits);
    ret->group = json_read_u32_or(p, "group_size", 32, 128, absent.group);
    if (!bits_ok(ret->bits))
        json_read_fail(p, -ENOTSUP, "bits is %u; supported are 2, 3, 4, 5, 6 and 8", ret->bits);
    if (ret->group != 32 && ret->group != 64 && ret->group != 128)
        json_read_fail(p, -ENOTSUP, "group_size is %u; supported are 32, 64 and 128", ret->group);
}

static void read_overrides(struct json_read *p, struct arena *a, struct quantization *q)
{
    const char *path;
    json_t *value;
    uint32_t count = 0;
    size_t n = json_object_size(p->object);
    q->entries = ARENA_ARRAY(a, struct quantization_entry, n);
    if (!q->entries || hash_map_init(&q->by_path, a, (uint32_t)n) < 0) {
        json_read_fail(p, -ENOMEM, "no memory left for %zu entries", n);
        return;
    }
    json_object_foreach((json_t *)p->object, path, value) {
        /* true and false only repeat whether the module has scales. */
        if (!json_is_object(value))
            continue;
        struct json_read one = {.object = value, .where = "config.json: quantization entry", .e = p->e};
        read_affine(&one, q->global, &q->entries[count]);
        if (one.error) {
            p->error = one.error;
            return;
        }
        struct slice key = slice_of(path);
        key.ptr = arena_strndup(a, key.ptr, key.len);
        if (!key.ptr) {
            json_read_fail(p, -ENOMEM, "no memory left for %zu entries", n);
            return;
        }
        hash_map_add(&q->by_path, key, count++);
    }
}

void config_quantization_read(struct json_read *r, struct arena *a, struct config *c)
{
    const json_t *block = json_read_get(r, "quantization");
    if (!block)
        block = json_read_get(r, "quantization_config");
    if (!block)
        return;
    if (!json_is_object(block)) {
        json_read_fail(r, -EINVAL, "quantization must be an object");
        return;
    }
    struct json_read p = {.object = block, .where = "config.json: quantization", .e = r->e};
    const char *method = json_read_string_or(&p, "quant_method", NULL);
    if (method && !json_read_get(&p, "group_size")) {
        json_read_fail(r, -ENOTSUP, "quant_method '%.40s' is not supported; MLX affine quantisation is",
                       method);
        return;
    }
    /* MLX writes both; its own defaults stand in where a file does not. */
    read_affine(&p, (struct quantization_entry){.bits = 4, .group = 64}, &c->quantization.global);
    if (!p.error)
        read_overrides(&p, a, &c->quantization);
    c->quantization.present = true;
    if (p.error && !r->error)
        r->error = p.error;
}
