/* server.h - `plateau serve` without its command line and its terminal: models found and planned, the
 * process's accounts, registry, API, listeners, and messages to the service manager, opened and closed in
 * order.
 *
 *     live_open(&s.live, ...), server_prepare, server_open, server_run (returns after a server_stop),
 *     server_close, server_done
 *
 * The thread that calls server_run becomes the network thread. Other functions run on it or before it
 * runs. */
#ifndef PLATEAU_HOST_SERVER_H
#define PLATEAU_HOST_SERVER_H

#include "host/listeners.h"
#include "host/live.h"
#include "host/models/model_finder.h"
#include "host/models/models.h"
#include "host/runtime.h"
#include "host/service.h"

struct kv_events;

struct server {
    struct live live; /* opened before server_prepare */
    struct runtime rt;
    struct api *api;
    struct http_server *http;
    struct listeners listeners;
    struct service service;
    struct models models;
    struct kv_events *events; /* NULL: none are published */
    struct registry *registry;
    struct model_finder finder; /* finds models that come later */
    /* Set by the front; may be NULL. On the loading thread of that model, as registry_opts.progress. */
    void (*progress)(void *arg, uint32_t index, uint64_t done, uint64_t total);
    void (*changed)(void *arg); /* the state of a model changed: see registry_opts */
    void *arg;
    char conversations_file[4096];
    int leave_timer; /* timerfd: the end of --drain-grace; -1: none runs */
    bool stopping;
};

/* Nothing is open; server_close and server_done are fine. */
void server_init(struct server *s);
/* Finds the models, plans them, and opens the process's accounts, workers and SSD tier. Reads files on the
 * calling thread. */
int server_prepare(struct server *s, struct err *e);
/* Opens everything else; listens at its end, and answers once it runs. server_close is due afterwards. */
int server_open(struct server *s, struct err *e);
/* Starts the loads and serves until server_stop or a failure. */
int server_run(struct server *s, struct err *e);
/* Serves for --drain-grace, and says that it drains; then drains: open requests end within --drain. If it is
 * called again: at once. On the network thread. */
void server_stop(struct server *s);
/* Reads the settings again, and looks for models that came since. */
void server_reload(struct server *s);
/* A model of the start could not be loaded. */
bool server_failed(const struct server *s);
/* Shutdown order: connections, loads (at their next piece), engines (at their next layer), prep threads, then
 * shared state; each step runs whatever the ones before returned. False: a load or a search hangs and cannot
 * be joined. What it may use stays then, everything else is closed, and the process has to end without
 * exit(): that would free memory which it uses. */
bool server_close(struct server *s);
/* After server_close returned true. */
void server_done(struct server *s);

#endif
