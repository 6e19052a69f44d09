/* live.h - settings that may change while the server runs: their sources, their present values, and SIGHUP.
 *
 * Options are read at the start and again at each reload, from the same places: the present file of
 * --config, and the environment and command line of the start. Live options are applied, all of them or
 * none; the log names changed options that need a restart. Memory: two sets of options and a copy of the
 * command line, however often they are read. Network thread, or before it runs. */
#ifndef PLATEAU_CLI_LIVE_H
#define PLATEAU_CLI_LIVE_H

#include "api/api.h"
#include "api/keyring.h"
#include "cli/key_pipes.h"
#include "cli/options.h"
#include "engine/engine.h"
#include "http/http_server.h"

struct live {
    struct options started; /* as at the start: what everything holds to that cannot change */
    struct options now;     /* as read last, for the live options */
    struct keyring *keys;
    struct key_pipes pipes;
    /* The admin key where no option names one: random, made at the start, and one of `keys` whenever there is
     * no other. */
    char own_admin_key[65];
    struct engine_live engine; /* for engine_opts.live */
    int argc;
    char **argv; /* a copy, whole: the process's own has its secrets overwritten */
    /* What it applies to, and up to what: 0 is no bound. */
    struct api *api;
    struct http_server *http;
    size_t body_bytes_max, request_bytes_max;
    uint64_t reloads, failures;
};

/* Reads everything, checks it, and hides secrets in argv. With --help only the options are read. On
 * failure e has the reason, and live_close is still due. */
int live_open(struct live *l, int argc, char **argv, struct err *e);
/* Reads everything again; an error leaves all settings unchanged. Logs the result and returns it: 0 or the
 * error. */
int live_reload(struct live *l);
/* After what it applies to is gone. Zeroed is fine. */
void live_close(struct live *l);

/* The key that opens the admin's routes now because no option names one; NULL: one does. */
const char *live_own_admin_key(const struct live *l);
/* Of what holds now: without keys only this machine's own pages and programs may ask. */
bool live_is_guarded(const struct live *l);

#endif
