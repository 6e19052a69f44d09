/* live.h - settings that may change while the server runs: their sources, their present values, and SIGHUP.
 *
 * Settings are read at the start and again at each reload, from the same source. Live ones are applied, all
 * of them or none; the log names changed settings that need a restart. Memory: two sets of settings, however
 * often they are read. Network thread, or before it runs. */
#ifndef PLATEAU_HOST_LIVE_H
#define PLATEAU_HOST_LIVE_H

#include "host/keys.h"
#include "host/settings.h"
#include "engine/engine.h"

struct api;
struct http_server;

/* Reads the settings of a server from all their sources; called at the start and at each reload.
 * settings_done() is due also on failure. 0, or an error. */
struct live_source {
    int (*read)(void *arg, struct settings *ret, struct err *e);
    void *arg;
};

struct live {
    struct settings started; /* settings of the start: binding where a setting cannot change */
    struct settings now;     /* settings read last, for those that can change */
    struct keyring *keys;
    struct key_pipes pipes;
    /* The admin key where no setting names one: random, made at the start, and one of `keys` whenever there
     * is no other. */
    char own_admin_key[65];
    struct engine_live engine; /* for engine_opts.live */
    struct live_source source;
    /* Targets of live settings, and their upper bounds: 0 if unbounded. */
    struct api *api;
    struct http_server *http;
    size_t body_bytes_max, request_bytes_max;
    uint64_t reloads, failures;
    bool formatted; /* the log has its format */
};

/* Reads everything and checks it. With --help only the settings are read. On failure e has the reason, and
 * live_close is still due. */
int live_open(struct live *l, const struct live_source *source, struct err *e);
/* Reads everything again; an error leaves all settings unchanged. Logs the result and returns it: 0 or the
 * error. */
int live_reload(struct live *l);
/* After what it applies to is gone. Zeroed is fine. */
void live_close(struct live *l);

/* The key that opens the admin's routes now because no setting names one; NULL: one does. */
const char *live_own_admin_key(const struct live *l);
/* True while the server listens on loopback and has no keys: only this machine's own pages and programs may
 * ask. */
bool live_is_guarded(const struct live *l);

#endif
