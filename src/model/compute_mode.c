/* compute_mode.c - the names of the modes. */
#include "model/model.h"

#include "base/check.h"

#include <string.h>

static const char *const mode_names[] = {
    [COMPUTE_AUTO] = "auto",   [COMPUTE_F32] = "f32",   [COMPUTE_BF16] = "bf16",
    [COMPUTE_INT16] = "int16", [COMPUTE_INT8] = "int8", [COMPUTE_FP8] = "fp8"};

bool compute_mode_parse(const char *name, enum compute_mode *ret)
{
    for (size_t i = 0; i < COUNT_OF(mode_names); i++) {
        if (strcmp(name, mode_names[i]) == 0) {
            *ret = (enum compute_mode)i;
            return true;
        }
    }
    return false;
}

const char *compute_mode_name(enum compute_mode m)
{
    ASSERT((size_t)m < COUNT_OF(mode_names));
    return mode_names[m];
}
