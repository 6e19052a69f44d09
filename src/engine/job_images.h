/* job_images.h - checks a request's images before its job is made. */
#ifndef PLATEAU_ENGINE_JOB_IMAGES_H
#define PLATEAU_ENGINE_JOB_IMAGES_H

#include "model/model.h"

#include <stdint.h>

struct err;
struct job_spec;

/* Edge in pixels of the square that one token stands for; 0: the model sees nothing. */
static inline uint32_t job_images_edge(const struct model_shape *s)
{
    return s->vision.present ? s->vision.patch * s->vision.merge : 0;
}

/* The prompt itself has been checked. 0, or -EINVAL and a sentence for the client. Any thread. */
int job_images_check(const struct model_shape *shape, const struct job_spec *spec, struct err *e);

#endif
