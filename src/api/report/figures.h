/* figures.h - once a second, the figures of the process: into the history, and to the attention list.
 *
 * All of it lies in memory of a fixed size that the account `history` pays for. Network thread. */
#ifndef PLATEAU_API_FIGURES_H
#define PLATEAU_API_FIGURES_H

#include "memory/ledger.h"

struct api;
struct attention;
struct figures;
struct history;

size_t figures_bytes(void);
/* 0 or -ENOMEM (the account or the system). */
int figures_create(struct account *account, struct figures **ret);
/* NULL is fine. */
void figures_free(struct figures *f);

/* Takes a sample when a second has begun; NULL is fine. */
void figures_tick(struct figures *f, struct api *a, uint64_t now_ns);

const struct history *figures_history(const struct figures *f);
const struct attention *figures_attention(const struct figures *f);

struct figures_rates {
    double generated, prefilled, cached;     /* tokens a second, over the last 10 s */
    double first_token_p50, first_token_p95; /* seconds, over the last 5 min; NAN: none came */
    uint64_t first_tokens;                   /* first tokens in these 5 min */
};
void figures_rates(const struct figures *f, struct figures_rates *ret);

#endif
