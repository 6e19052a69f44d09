/* launch_server.h - a server for one session, which ends with this process and with what it becomes by
 * exec(). Main thread. */
#ifndef PLATEAU_CLI_LAUNCH_SERVER_H
#define PLATEAU_CLI_LAUNCH_SERVER_H

#define LAUNCH_URL_BYTES 256

struct err;

/* Starts `plateau serve` with a model (NULL: its own ones) at a free port of the loopback address, and waits
 * until it is ready. *ret: its address, without a slash at its end. -ECHILD: it ended; `e` has its last line.
 * -ECANCELED: Ctrl-C. Or the system's error. */
int launch_server_start(const char *model, char ret[LAUNCH_URL_BYTES], struct err *e);

#endif
