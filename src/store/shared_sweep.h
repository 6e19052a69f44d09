/* shared_sweep.h - the size of a shared directory: a server counts it and removes files.
 *
 * shared_dir.h has the rules. A lock inside; a tend by one thread at a time. */
#ifndef PLATEAU_STORE_SHARED_SWEEP_H
#define PLATEAU_STORE_SHARED_SWEEP_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define SHARED_TMP     "tmp"
#define SHARED_CLIENTS "clients"
#define SHARED_SWEEP   "sweep"

struct shared_sweep {
    char id[33]; /* this server's */
    uint64_t limit_bytes, dead_s;
    pthread_mutex_t lock;
    uint64_t number, left_bytes; /* the last sweep that is known, and what it left */
    uint64_t others_bytes;       /* written by others since, as their files said */
    uint64_t own_bytes, last_s;  /* written by this server since, and when last */
    uint64_t renewed_bytes;      /* own_bytes at the last tend: the sweep that is learned of came later */
    uint64_t swept;              /* files that it removed, ever */
};

void shared_sweep_init(struct shared_sweep *s, uint64_t limit_bytes, uint64_t dead_s);
void shared_sweep_done(struct shared_sweep *s);
/* True if `bytes` more fit below the limit. */
bool shared_sweep_allows(struct shared_sweep *s, uint64_t bytes);
void shared_sweep_wrote(struct shared_sweep *s, uint64_t bytes);
/* Bytes in the directory, by the last count and the writes since then. */
uint64_t shared_sweep_bytes(struct shared_sweep *s);
/* Renews this server's file in the directory `dir`, reads the other servers' files, and sweeps if it is this
 * server's turn. Failures are left for the next time. */
void shared_sweep_tend(struct shared_sweep *s, int dir, mode_t mode);
/* Removes this server's file. */
void shared_sweep_leave(struct shared_sweep *s, int dir);

#endif
