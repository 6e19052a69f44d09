/* rope_init.h - the frequencies of a configuration's rotary position embedding. */
#ifndef PLATEAU_MODEL_ROPE_INIT_H
#define PLATEAU_MODEL_ROPE_INIT_H

#include "compute/rope.h"
#include "model/config.h"

void rope_init(struct rope *r, const struct rope_config *c);

#endif
