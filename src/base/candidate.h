/* candidate.h - a token that may be sampled, with its logit or what stands for it. */
#ifndef PLATEAU_BASE_CANDIDATE_H
#define PLATEAU_BASE_CANDIDATE_H

#include <stdint.h>

struct candidate {
    float logit;
    uint32_t id;
};

#endif
