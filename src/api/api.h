/* api.h - OpenAI's routes, and those that tools and operators read, in front of a registry of models.
 *
 * Two kinds of threads: the network thread (http_server_run) owns every exchange and does all that is short;
 * prep threads parse, render, tokenize and submit. An engine talks to an exchange through its stream only.
 *
 * Start: registry_create, api_create, http_server_create with api_handler(), api_attach, registry_start; the
 * server may then run at once and says 503 "loading" until all models are there that are loaded at the start.
 * End: api_set_state(API_DRAINING), http_server_stop, http_server_free, registry_stop, api_stop (prep threads
 * join; nobody submits any more), registry_close, api_free. */
#ifndef PLATEAU_API_API_H
#define PLATEAU_API_API_H

#include "api/media.h"
#include "base/err.h"
#include "http/http_server.h"
#include "registry/registry.h"
#include "store/store.h"

struct api;
struct keyring;

/* http_server_opts.listener of a server whose handler is api_handler(). */
enum api_listener {
    API_LISTENER_MAIN,   /* keys decide */
    API_LISTENER_SOCKET, /* a Unix socket of the process's own user: every request is the admin's */
    API_LISTENER_ADMIN, /* an address where everything but /live, /health and their like needs the admin key */
    API_LISTENER_METRICS /* /metrics, /live, /health and their like, without a key; nothing else is there */
};

/* 0 takes the default that stands beside it. */
struct api_opts {
    struct ledger *ledger;   /* for /api/memory */
    struct holders *holders; /* what clears and trims walk; NULL: there is nothing */
    struct guard *guard;     /* says when new work is refused; NULL: never */
    struct store *store;     /* of the SSD tier, for reports and to be cleared; NULL: there is none */
    struct account *text;    /* pays for requests from their JSON to their reply; its limit is their limit */
    struct account *threads; /* pays for the stacks of prep threads; NULL: `text` does */
    struct media_opts media; /* threads, done and arg are the api's */
    uint32_t requests_max;   /* at once, those still uploading included; 1024 */
    uint32_t choices_max;    /* of one request: prompts x n; 128 */
    uint32_t json_depth_max; /* 64 */
    uint32_t prep_threads;   /* 1 on up to 4 processors, else 2 */
    size_t prep_queue_bytes_max; /* bodies that wait to be read; 64 MiB */
    size_t request_bytes_max;    /* what one request may hold of `text`; 256 MiB */
    /* When a request says none; 0: a chat gets the rest of the context, a completion 16. */
    uint32_t max_tokens_default;
    uint32_t keepalive_s;   /* a comment in a stream that was silent for so long; 10 */
    uint32_t slow_client_s; /* a client that does not read its reply for so long is dropped; 30 */
    uint32_t stuck_s;       /* an engine without progress for so long is reported unhealthy; 30 */
    /* Without keys for the models everybody may use them; without keys for the admin's routes those answer on
     * API_LISTENER_SOCKET only. Borrowed; NULL: none. */
    const struct keyring *keys;
    struct registry *registry; /* borrowed; its `changed` leads to api_models_changed() */
    uint32_t model_count;      /* that it knows */
    uint32_t load_timeout_s;   /* a request waits for its model to be loaded so long; 600 */
};

/* What it will hold of `text` before the first request. */
uint64_t api_bytes(const struct api_opts *opts);
/* And of `threads`. */
uint64_t api_stack_bytes(const struct api_opts *opts);
/* 0, -EINVAL, -ENOMEM. The state is API_LOADING. */
int api_create(const struct api_opts *opts, struct api **ret, struct err *e);
/* For http_server_opts; its arg is the api. Before the server is created. */
struct http_handler api_handler(struct api *a);
/* The same: what a probe asks, also when connections have run out. */
extern const char *const api_vital_paths[];
/* Watches the api's mailboxes. 0 or what http_server_watch() said. */
int api_attach(struct api *a, struct http_server *s);
/* After http_server_free, before any engine_close: ends the prep threads and every exchange. */
void api_stop(struct api *a);
/* After every engine is closed. NULL is fine. */
void api_free(struct api *a);

enum api_state { API_LOADING, API_READY, API_DRAINING, API_FAILED };

/* Any thread: some model's state is another. While the state is API_LOADING it becomes API_READY when all
 * models that are loaded at the start are there, or API_FAILED, which stops the server. */
void api_models_changed(struct api *a);
/* Any thread. `reason` (may be NULL; cut at 200 bytes) is told by /health and to refused clients: why it
 * failed. */
void api_set_state(struct api *a, enum api_state s, const char *reason);
enum api_state api_state_of(struct api *a);

/* What may change while it serves, as in api_opts; 0 takes the default. requests_max cannot be more than at
 * first. */
struct api_live {
    uint32_t requests_max, max_tokens_default, keepalive_s, slow_client_s, stuck_s, load_timeout_s;
    size_t request_bytes_max;
};
/* Network thread, or before it runs. */
void api_set_live(struct api *a, const struct api_live *live);
/* Network thread: from now on these open the server, for requests whose header comes later. The ring before
 * may be freed. */
void api_set_keys(struct api *a, const struct keyring *keys);

/* How it is, at a glance. Network thread. */
struct api_glance {
    enum api_state state;
    const char *stuck; /* a model that has work and does not get on; NULL: none */
    uint64_t load_done, load_total;
};
void api_glance(struct api *a, struct api_glance *ret);

/* Any thread: requests that are being received, prepared, computed or sent. */
uint32_t api_requests_now(struct api *a);

#endif
