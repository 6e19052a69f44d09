/* listeners.h - further listeners of a server: the admin socket, addresses for the admin, an address for
 * metrics.
 *
 * Each has LISTENERS_CONNECTIONS connections of its own, reserved with the server's: clients that hold all
 * connections of the port lock out neither the administrator nor the monitoring. Network thread, or before
 * it runs. */
#ifndef PLATEAU_HOST_LISTENERS_H
#define PLATEAU_HOST_LISTENERS_H

#include "host/admin_socket.h"
#include "host/settings.h"

struct api;

#define LISTENERS_CONNECTIONS 8

struct listener_address {
    const char *option; /* "admin" or "metrics" */
    char host[256];
    uint16_t port; /* the bound one */
};

struct listeners {
    struct admin_socket socket;
    struct listener_address addresses[SETTINGS_KEYS_MAX + 1]; /* open ones */
    uint32_t address_count;
};

/* -EINVAL: an --admin-listen or --metrics-listen says nothing that can be listened on. */
int listeners_check(const struct settings *o, struct err *e);
/* Returns the bytes that the listeners reserve in `network`. */
uint64_t listeners_bytes(const struct settings *o);
/* Joins them to `http`, which frees them. If the default admin socket cannot be made, the log says so, and
 * the server runs without it; a failure of a listener named by an option is an error. */
int listeners_open(struct listeners *l, const struct settings *s, struct api *api, struct http_server *http,
                   struct account *network, struct err *e);
/* One line of the log for each listener: after the words for people, which say where the server listens. */
void listeners_log(const struct listeners *l);
/* The key file has `own_admin_key`, which opens the admin routes now; NULL: there is no key file. */
void listeners_tell_key(struct listeners *l, const char *own_admin_key);
/* Removes the files; before the listeners are closed. Zeroed is fine. */
void listeners_close(struct listeners *l);

#endif
