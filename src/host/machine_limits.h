/* machine_limits.h - for the command bench: what this machine can read and multiply, and what a model in
 * files asks of it. One thread. */
#ifndef PLATEAU_HOST_MACHINE_LIMITS_H
#define PLATEAU_HOST_MACHINE_LIMITS_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct machine_limits;
struct model_work;

/* Threads of their own, as many as a server would have, and memory to stream: 256 MiB or four times the
 * last-level cache. 0, -ENOMEM, -EAGAIN. */
int machine_limits_open(struct machine_limits **ret);
/* NULL is fine. */
void machine_limits_close(struct machine_limits *l);
uint32_t machine_limits_threads(const struct machine_limits *l);
/* Whether so many bytes may stay in a cache between two steps: they can be read faster than memory. */
bool machine_limits_in_cache(uint64_t bytes);
/* One pass each, of all threads: bytes a second read from memory; f32 operations a second, where a fused
 * multiply-add is two. 0: the processor has no unit that kernels use. */
double machine_limits_read(struct machine_limits *l);
double machine_limits_multiply(struct machine_limits *l);

/* MODEL as other commands take it; its headers are read. 0, or an error of runtime_find_model() or
 * model_probe(). */
int machine_limits_work(const char *model, struct model_work *ret, struct err *e);

#endif
