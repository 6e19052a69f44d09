/* media_process.h - a program that reads what a client sent: started without a shell, bounded, and ended with
 * all it has started. One thread at a time. */
#ifndef PLATEAU_API_MEDIA_PROCESS_H
#define PLATEAU_API_MEDIA_PROCESS_H

#include "base/err.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define MEDIA_PROCESS_INPUT "/proc/self/fd/3" /* where it finds its input */
#define MEDIA_PROCESS_SAID  1024

struct media_process_opts {
    const char *const *argv; /* NULL ends it; argv[0] is looked up in PATH */
    int input;
    uint64_t memory_bytes; /* that it may write to */
    uint64_t deadline_ns;  /* clock time; it has no more seconds of a processor than there are until then */
    const atomic_bool *stop;
};

struct media_process {
    pid_t pid;
    int pidfd, out, err;
    uint64_t deadline_ns;
    const atomic_bool *stop;
    char said[MEDIA_PROCESS_SAID]; /* the beginning of what it wrote to stderr; terminated, one line */
    size_t said_len;
};

/* 0, or what the system said. */
int media_process_start(struct media_process *p, const struct media_process_opts *opts);
/* Reads its output until `bytes` are there or it ends. 0, -ECANCELED, or -ETIMEDOUT. */
int media_process_read(struct media_process *p, void *to, size_t bytes, size_t *ret);
/* Waits for its end, not beyond its deadline; then, or when it is told to stop, it is killed. True: it ended
 * by itself, and well. */
bool media_process_end(struct media_process *p);

#endif
