/* hub_child.h - a pull in a process of its own: `plateau pull`, whose events come as JSON over a pipe.
 *
 * The memory of a pull has one bound, which the system enforces, and all of it goes back at the end. The
 * process has no settings of its parent and none of its keys, only what a pull reads: HF_*, HOME, proxies,
 * and where the program's libraries are.
 * It ends within a second after its parent, when nothing reads its events. One thread at a time. */
#ifndef PLATEAU_HUB_HUB_CHILD_H
#define PLATEAU_HUB_HUB_CHILD_H

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Limit of the child's writable memory (RLIMIT_DATA); the test of a thousand pulls stays below it. */
#define HUB_CHILD_BYTES      ((uint64_t)64 << 20)
#define HUB_CHILD_LINE_BYTES 8192

struct hub_child_opts {
    const char *model;      /* ORG/NAME or ORG/NAME@REVISION, valid */
    uint64_t ceiling_bytes; /* ceiling of the memory that the model is planned for */
    bool anyway;            /* fetch what does not run here, too */
};

struct hub_child {
    pid_t pid;      /* 0: none */
    int pidfd, out; /* readable at its end; readable when events came */
    size_t len;     /* bytes in `line` */
    bool skips;     /* the rest of a line that is too long */
    char line[HUB_CHILD_LINE_BYTES];
    char said[256]; /* the last line that was not an event, in ASCII: why it ended, if no event says it */
};

/* 0, or the system's error. */
int hub_child_start(const struct hub_child_opts *o, struct hub_child *ret);
/* Calls `event` for each event that came, without waiting. False: no more will come. */
bool hub_child_read(struct hub_child *c, void (*event)(void *arg, const json_t *e), void *arg);
/* Asks it to end; a second pull goes on where it stops. */
void hub_child_stop(const struct hub_child *c);
/* Kills it, unless it has ended, and closes all. Returns whether it had ended by itself with status 0; if
 * not, `why` has how. After its last event was read, since events are lost before. Without a process:
 * false. */
bool hub_child_end(struct hub_child *c, struct err *why);

#endif
