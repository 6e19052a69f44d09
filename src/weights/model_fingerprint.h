/* model_fingerprint.h - identifies a model by its files; pages on disk carry it.
 *
 * The fingerprint is a SHA-256 over config.json, the image preprocessor's configuration, and a part of each
 * weights file (.safetensors and .gguf, also below mtp/). That part is the name, size, header, and pieces of
 * 4 KiB spread evenly over the file: one for each 16 MiB, within the bounds below. It reads a few MB of a
 * file, whatever its size. Copies of a model have the same one. A model is taken for another only if just
 * bytes between the pieces differ, as after an edit of few small tensors in place. */
#ifndef PLATEAU_WEIGHTS_MODEL_FINGERPRINT_H
#define PLATEAU_WEIGHTS_MODEL_FINGERPRINT_H

#include "base/err.h"

#include <stdint.h>

struct model_files;

#define MODEL_FINGERPRINT_BYTES       32
#define MODEL_FINGERPRINT_SAMPLES     64
#define MODEL_FINGERPRINT_SAMPLES_MAX 512
#define MODEL_FINGERPRINT_FILES_MAX   1024
#define MODEL_FINGERPRINT_HEADER_MOST ((uint64_t)64 << 20) /* bytes of a header that are read */

/* Takes a few hundred KB of the heap while it runs. 0, -ENOENT (no weights there), -E2BIG (too many files),
 * -ENOMEM, or a read error. */
int model_fingerprint(struct model_files *model, uint8_t ret[MODEL_FINGERPRINT_BYTES], struct err *e);

#endif
