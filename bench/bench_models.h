/* bench_models.h - the models that benchmarks run: directories, and made-up checkpoints that are written into
 * the build folder once. */
#ifndef PLATEAU_BENCH_BENCH_MODELS_H
#define PLATEAU_BENCH_BENCH_MODELS_H

#include "base/err.h"

#include <stdint.h>

#define BENCH_DIR_BYTES 4096

/* `model` is a directory, or SHAPE-FORM as mkmodel --list has them. 0, -ENOMEM (it would not fit into
 * memory), or why it could not be written. */
int bench_models_find(const char *model, char ret[BENCH_DIR_BYTES], struct err *e);
/* Checks that enough memory stays free after `bytes`: 0, or -ENOMEM with the numbers. */
int bench_models_check_memory(uint64_t bytes, struct err *e);

#endif
