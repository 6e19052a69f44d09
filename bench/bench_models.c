/* bench_models.c - a checkpoint is written unless it is there, or would not fit into memory anyway. */
#include "bench_models.h"

#include "mkmodel/mk_write.h"

#include "base/check.h"
#include "memory/footprint.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* Bytes that a load must leave free. */
#define SPARE_BYTES ((uint64_t)512 << 20)

static uint64_t memory_free(void)
{
    struct footprint f;
    footprint_read(&f);
    uint64_t bytes = f.ram_available_bytes;
    if (f.cgroup_limit_bytes)
        bytes = MIN_OF(bytes, f.cgroup_limit_bytes - MIN_OF(f.cgroup_bytes, f.cgroup_limit_bytes));
    return bytes;
}

int bench_models_check_memory(uint64_t bytes, struct err *e)
{
    uint64_t left = memory_free();
    if (bytes + SPARE_BYTES <= left)
        return 0;
    return err_set(e, -ENOMEM, "it takes %llu MiB of memory, and of %llu MiB free %llu MiB shall stay",
                   (unsigned long long)(bytes >> 20), (unsigned long long)(left >> 20),
                   (unsigned long long)(SPARE_BYTES >> 20));
}

/* Parses "SHAPE-FORM". False for any other name. */
static bool parse_made_up(const char *name, struct mk_write_opts *ret)
{
    char shape[64];
    const char *dash = strrchr(name, '-');
    if (!dash || (size_t)(dash - name) >= sizeof(shape))
        return false;
    snprintf(shape, sizeof(shape), "%.*s", (int)(dash - name), name);
    *ret = (struct mk_write_opts){.shape = mk_shape_find(shape), .form = mk_form_find(dash + 1)};
    return ret->shape && ret->form;
}

/* Writes the checkpoint unless it is there, or would not fit into memory anyway. */
static int make(const struct mk_write_opts *o, const char *dir, struct err *e)
{
    char config[4200];
    struct stat st;
    uint64_t bytes;
    snprintf(config, sizeof(config), "%s/config.json", dir);
    if (stat(config, &st) == 0)
        return 0;
    if (mkdir(BENCH_MODELS, 0755) < 0 && errno != EEXIST)
        return err_set(e, -errno, "%s: %s", BENCH_MODELS, strerror(errno));
    int r = mk_write_bytes(o, &bytes, e);
    if (r == 0)
        r = bench_models_check_memory(bytes, e);
    return r == 0 ? mk_write(o, dir, e) : r;
}

int bench_models_find(const char *model, char ret[BENCH_DIR_BYTES], struct err *e)
{
    struct mk_write_opts o;
    if (parse_made_up(model, &o)) {
        snprintf(ret, BENCH_DIR_BYTES, "%s/%s", BENCH_MODELS, model);
        return make(&o, ret, e);
    }
    snprintf(ret, BENCH_DIR_BYTES, "%s", model);
    return 0;
}
