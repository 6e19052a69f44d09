/* packing.c - finds the model, and opens what packing needs of a process. */
#include "host/packing.h"

#include "host/models/model_hint.h"
#include "host/planning.h"
#include "host/runtime.h"
#include "host/settings.h"

#include "base/hex.h"
#include "compute/device.h"
#include "engine/fingerprint.h"
#include "model/load/pack.h"

#include <stdio.h>

static int pack(const char *dir, const struct settings *o, const struct packing_opts *opts,
                struct pack_opts *to, struct pack_result *ret, struct err *e)
{
    struct device *device = NULL;
    int r = device_open_cpu(1, NULL, &device);
    if (r < 0)
        return err_set(e, r, "the CPU's kernels could not be set up");
    to->device = device;
    to->replace = o->yes;
    to->progress = opts->progress;
    to->progress_arg = opts->arg;
    r = pack_model(dir, opts->out, to, ret, e);
    device_close(device);
    return r;
}

int packing_run(const struct settings *o, const struct packing_opts *opts, struct pack_result *ret,
                struct err *e)
{
    char dir[RUNTIME_DIR_BYTES], id[RUNTIME_ID_BYTES], fingerprint[2 * 32 + 1];
    uint8_t bytes[32];
    struct model_parts parts = {0};
    int r = runtime_find_model(o->models.model, NULL, dir, id, e);
    if (r == 0)
        r = planning_arithmetic(o, &parts, e);
    if (r < 0)
        return r;
    r = fingerprint_files(dir, bytes, e);
    if (r < 0)
        return model_hint(dir, r, e);
    hex_text(bytes, sizeof(bytes), fingerprint);
    struct pack_opts to = {.compute = parts.compute, .quant = parts.quant, .fingerprint = fingerprint};
    return pack(dir, o, opts, &to, ret, e);
}
