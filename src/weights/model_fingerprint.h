/* model_fingerprint.h - identifies a model by its files; pages on disk carry it.
 *
 * The fingerprint is a SHA-256 over config.json, the image preprocessor's configuration, and a part of each
 * weights file (.safetensors and .gguf, also below mtp/). That part is the name, size, time of last change
 * in nanoseconds, header, and MODEL_FINGERPRINT_SAMPLES pieces of 4 KiB spread evenly over the file. It reads
 * a few MB, whatever the model's size. A rewritten file has another time; a file copied with its time has
 * other content, or is the same. Only a file changed in few places, with its size and time restored on
 * purpose, is undetected. */
#ifndef PLATEAU_WEIGHTS_MODEL_FINGERPRINT_H
#define PLATEAU_WEIGHTS_MODEL_FINGERPRINT_H

#include "base/err.h"

#include <stdint.h>

struct model_files;

#define MODEL_FINGERPRINT_BYTES       32
#define MODEL_FINGERPRINT_SAMPLES     64
#define MODEL_FINGERPRINT_FILES_MAX   1024
#define MODEL_FINGERPRINT_HEADER_MOST ((uint64_t)64 << 20) /* bytes of a header that are read */

/* Takes a few hundred KB of the heap while it runs. 0, -ENOENT (no weights there), -E2BIG (too many files),
 * -ENOMEM, or a read error. */
int model_fingerprint(struct model_files *model, uint8_t ret[MODEL_FINGERPRINT_BYTES], struct err *e);

#endif
