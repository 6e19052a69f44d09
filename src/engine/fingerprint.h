/* fingerprint.h - identifies a model by its files, which keeps one model's pages from another's on disk.
 *
 * The fingerprint is a SHA-256 over config.json, the image preprocessor's configuration, and a part of each
 * weights file (.safetensors and .gguf, also below mtp/). That part is the name, size, time of last change
 * in nanoseconds, header, and FINGERPRINT_SAMPLES pieces of 4 KiB spread evenly over the file. It reads a
 * few MB, whatever the model's size. A rewritten file has another time; a file copied with its time has
 * other content, or is the same. Only a file changed in few places, with its size and time restored on
 * purpose, is undetected. */
#ifndef PLATEAU_ENGINE_FINGERPRINT_H
#define PLATEAU_ENGINE_FINGERPRINT_H

#include "base/err.h"

#include <stdint.h>

struct store_identity;

#define FINGERPRINT_SAMPLES     64
#define FINGERPRINT_FILES_MAX   1024
#define FINGERPRINT_HEADER_MOST ((uint64_t)64 << 20) /* bytes of a header that are read */

struct model_shape;

/* The SHA-256 alone. As below. */
int fingerprint_files(const char *dir, uint8_t ret[32], struct err *e);
/* `dir`: a directory or a file. `layout` names everything else that decides the bits of K, V and states:
 * arithmetic, sizes, the processor's instruction sets, the program's version. Any thread; takes a few
 * hundred KB of the heap while it runs. 0, -ENOENT (no weights there), -ENOMEM, or a read error. */
int fingerprint_make(const char *dir, const struct model_shape *shape, unsigned cpu_flags,
                     struct store_identity *ret, struct err *e);

#endif
