/* repetition.h - finds a loop at the end of an output: a pattern of tokens that stands there several times.
 *
 * A token costs one comparison per pattern length, at most REPETITION_PATTERN_MAX, whatever the length of the
 * output. The result is a function of the output's tokens, so preemption, cache hits and speculative decoding
 * do not change it. Plain data in a job; engine thread. */
#ifndef PLATEAU_SAMPLE_REPETITION_H
#define PLATEAU_SAMPLE_REPETITION_H

#include "sample/sampler_params.h"

#include "base/arena.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Parameters of a mode of --repetition-detection: off, reply or reasoning. False: there is no such mode. */
bool repetition_params_named(const char *mode, struct repetition_params *ret);

struct repetition {
    struct repetition_params params;
    uint32_t *runs; /* by pattern length: last tokens that equal the token one pattern before; NULL: off */
    uint32_t *ends; /* by pattern length: the run that is a loop */
    uint32_t from;  /* index of the output's first token that is looked at */
};

/* Bytes of arena that repetition_create() takes. */
size_t repetition_bytes(const struct repetition_params *params);
/* 0 or -ENOMEM. With pattern_max 0 there is no detection. */
int repetition_create(struct arena *a, const struct repetition_params *params, struct repetition *ret);
/* The output of `count` tokens has a new last one. Called for each token. Returns the tokens of the shortest
 * pattern whose loop the output ends with, or 0. */
uint32_t repetition_see(struct repetition *r, const uint32_t *output, uint32_t count);
/* Looks no more at the first `count` tokens of the output. */
void repetition_restart(struct repetition *r, uint32_t count);

#endif
