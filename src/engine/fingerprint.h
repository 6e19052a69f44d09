/* fingerprint.h - which model this is, by its files: what keeps one model's pages from another's on disk.
 *
 * SHA-256 over config.json, the picture preprocessor's configuration and, of each weights file (.safetensors
 * and .gguf, also below mtp/), its name, size, time of last change in nanoseconds, header and
 * FINGERPRINT_SAMPLES pieces of 4 KiB spread evenly over it. It reads a few MB, whatever the model's size. A
 * file that was written again has another time; one that was copied with its time has another content, or is
 * the same. So what stays unseen is a file changed in few places whose size and time were put back on
 * purpose. */
#ifndef PLATEAU_ENGINE_FINGERPRINT_H
#define PLATEAU_ENGINE_FINGERPRINT_H

#include "base/err.h"
#include "store/store_file.h"

#define FINGERPRINT_SAMPLES     64
#define FINGERPRINT_FILES_MAX   1024
#define FINGERPRINT_HEADER_MOST ((uint64_t)64 << 20) /* of a header, what is looked at */

struct model_shape;

/* `dir`: a directory or a file. `layout` names what decides the bits of K, V and states besides: arithmetic,
 * sizes, the processor's instruction sets, the program's version. Any thread; a few hundred KB of the general
 * heap for its time. 0, -ENOENT (no weights there), -ENOMEM, or what reading said. */
int fingerprint_make(const char *dir, const struct model_shape *shape, const char *compute,
                     unsigned cpu_flags, struct store_identity *ret, struct err *e);

#endif
