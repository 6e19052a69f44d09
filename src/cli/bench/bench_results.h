/* bench_results.h - what the command bench has measured, and its three forms: a table, JSON, and
 * comma-separated values. Main thread. */
#ifndef PLATEAU_CLI_BENCH_RESULTS_H
#define PLATEAU_CLI_BENCH_RESULTS_H

#include <stdbool.h>
#include <stdint.h>

#define BENCH_CLIENTS_MAX  8
#define BENCH_DECODES_MAX  4
#define BENCH_PREFILLS_MAX 3

struct bench_decode {
    uint32_t clients, tokens; /* tokens of each answer */
    double tokens_s, first_ms;
    double read_bytes_s, read_share; /* bytes of weights that steps read, and their share of the machine's
                                      * rate; 0: not known */
};

struct bench_prefill {
    uint32_t tokens, found_tokens;
    double cold_ms, found_ms;
    double operations_s, multiply_share; /* with weights; of the machine's multiply-adds. 0: not known */
};

struct bench_results {
    const char *model, *server; /* borrowed */
    uint32_t tokens;            /* tokens of each answer */
    struct bench_decode decodes[BENCH_DECODES_MAX];
    struct bench_prefill prefills[BENCH_PREFILLS_MAX];
    uint32_t decode_count, prefill_count;
    uint32_t threads; /* that measured the machine; 0: nobody did */
    double machine_read_bytes_s, machine_operations_s;
    bool in_cache;         /* the model's weights may stay in a cache: shares of reading can exceed 100 % */
    const char *no_shares; /* why they are missing, as half a sentence; NULL: there are shares */
    /* 0: the server does not say. */
    uint64_t planned_bytes;           /* least bytes that the model needs */
    uint64_t peak_bytes, limit_bytes; /* bytes of the whole server */
    uint64_t left_bytes;              /* in use 1 s after an unload, of a server that bench started */
};

void bench_results_table(const struct bench_results *s);
void bench_results_csv(const struct bench_results *s);
void bench_results_json(const struct bench_results *s);

#endif
