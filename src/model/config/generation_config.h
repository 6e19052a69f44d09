/* generation_config.h - sampling defaults of a model's makers, for requests that do not set them. */
#ifndef PLATEAU_MODEL_GENERATION_CONFIG_H
#define PLATEAU_MODEL_GENERATION_CONFIG_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct model_files;

#define GENERATION_EOS_MAX 16

struct generation_defaults {
    uint32_t eos_ids[GENERATION_EOS_MAX]; /* generation_config.json's, else config.json's */
    uint32_t eos_count;
    bool do_sample; /* absent: true when a temperature is given */
    bool has_temperature, has_top_k, has_top_p, has_min_p, has_repetition_penalty, has_max_new_tokens;
    double temperature;        /* absent: 1 */
    uint32_t top_k;            /* absent: 0, meaning all */
    double top_p;              /* absent: 1 */
    double min_p;              /* absent: 0 */
    double repetition_penalty; /* absent: 1 */
    uint32_t max_new_tokens;   /* absent: 0 */
};

/* Reads generation_config.json, which may be missing, and the end tokens of config.json. 0, -EINVAL
 * (a value out of bounds), -ENOMEM, or a read error. */
int generation_config_load(struct model_files *files, struct generation_defaults *ret, struct err *e);

#endif
