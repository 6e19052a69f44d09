/* bench_server.h - a server of its own for the command bench: started, asked and ended by it. Main thread. */
#ifndef PLATEAU_CLI_BENCH_SERVER_H
#define PLATEAU_CLI_BENCH_SERVER_H

#include "base/err.h"

#include <stdbool.h>
#include <sys/types.h>

struct bench_server {
    pid_t pid; /* 0: none */
    int out;   /* its standard output */
    char url[64], key[65];
};

/* Runs `plateau serve MODEL` (NULL: the bundled one) on a free port of loopback, with a key of its own. Its
 * other settings come from the environment. 0, -ECHILD (it ended, and said why), or the system's error. */
int bench_server_start(const char *model, struct bench_server *ret, struct err *e);
/* It has ended. */
bool bench_server_is_gone(struct bench_server *s);
/* Zeroed is fine. */
void bench_server_stop(struct bench_server *s);

#endif
