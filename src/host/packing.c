/* packing.c - finds the model, and opens what packing needs of a process. */
#include "host/packing.h"

#include "host/models/catalog.h"
#include "host/planning.h"
#include "host/runtime.h"
#include "host/settings.h"

#include "base/hex.h"
#include "compute/device.h"
#include "model/load/pack.h"
#include "registry/model_plan.h"
#include "weights/model_files.h"
#include "weights/model_fingerprint.h"

#include <stdio.h>

static int pack(struct model_files *files, const struct settings *o, const struct packing_opts *opts,
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
    r = pack_model(files, opts->out, to, ret, e);
    device_close(device);
    return r;
}

int packing_run(const struct settings *o, const struct packing_opts *opts, struct pack_result *ret,
                struct err *e)
{
    char dir[RUNTIME_DIR_BYTES], id[RUNTIME_ID_BYTES], fingerprint[2 * MODEL_FINGERPRINT_BYTES + 1];
    uint8_t bytes[MODEL_FINGERPRINT_BYTES];
    struct model_files *files = NULL;
    struct model_parts parts = {0};
    int r = runtime_find_model(o->models.model, NULL, dir, id, e);
    if (r == 0)
        r = planning_arithmetic(o, &parts, e);
    if (r < 0)
        return r;
    r = model_plan_open_files(dir, o->model.mmproj, &files, e);
    if (r == 0)
        r = model_fingerprint(files, bytes, e);
    if (r < 0) {
        model_files_close(files);
        return catalog_hint(dir, r, e);
    }
    hex_text(bytes, sizeof(bytes), fingerprint);
    struct pack_opts to = {.compute = parts.compute, .quant = parts.quant, .fingerprint = fingerprint};
    r = pack(files, o, opts, &to, ret, e);
    model_files_close(files);
    return r;
}
