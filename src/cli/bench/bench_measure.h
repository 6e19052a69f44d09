/* bench_measure.h - the requests of the command bench and the figures made of them. Main thread. */
#ifndef PLATEAU_CLI_BENCH_MEASURE_H
#define PLATEAU_CLI_BENCH_MEASURE_H

#include "model/model_work.h"

#include <stdbool.h>
#include <stdint.h>

struct bench_results;
struct err;
struct machine_limits;
struct remote;

struct bench_measure {
    /* Filled by the caller. */
    const struct remote *remote;
    uint32_t tokens; /* tokens of each answer */
    bool quick;
    struct machine_limits *limits; /* NULL: no shares */
    struct model_work work;        /* with limits */
    uint64_t seed;                 /* seed of the prompts */
    /* Private. */
    uint64_t drawn;
    double reads[32], multiplies[32]; /* measurements of the machine, one before each round */
    uint32_t read_count, multiply_count;
};

/* Fills decodes, prefills and the machine's figures. 0, -ECANCELED (a signal), -EPROTO (the server sends no
 * tokens, or refuses), or another error of stream_client_run(). */
int bench_measure_run(struct bench_measure *b, struct bench_results *ret, struct err *e);

#endif
