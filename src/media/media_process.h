/* media_process.h - a program that reads a client's bytes: started without a shell, with limits, and ended
 * together with all processes that it has started. One thread at a time. */
#ifndef PLATEAU_MEDIA_MEDIA_PROCESS_H
#define PLATEAU_MEDIA_MEDIA_PROCESS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define MEDIA_PROCESS_INPUT "/proc/self/fd/3" /* the path of its input */
#define MEDIA_PROCESS_SAID  1024

struct media_process_opts {
    const char *const *argv; /* NULL ends it; argv[0] is looked up in PATH */
    int input;
    uint64_t memory_bytes; /* the limit of the memory that it may write to */
    uint64_t deadline_ns;  /* clock time; the seconds until then also limit its processor time */
    const atomic_bool *stop;
};

struct media_process {
    pid_t pid;
    int pidfd, out, err;
    uint64_t deadline_ns;
    const atomic_bool *stop;
    char said[MEDIA_PROCESS_SAID]; /* the start of its stderr, as one line; terminated */
    size_t said_len;
};

/* 0, or the system's error. */
int media_process_start(struct media_process *p, const struct media_process_opts *opts);
/* Reads its output until `bytes` are there or the output ends. 0, -ECANCELED, -ETIMEDOUT, or the system's
 * error. */
int media_process_read(struct media_process *p, void *to, size_t bytes, size_t *ret);
/* Waits for its end, at most 5 s and not beyond its deadline; then, or when `stop` is set, kills it. True: it
 * ended by itself with status 0. */
bool media_process_end(struct media_process *p);

#endif
