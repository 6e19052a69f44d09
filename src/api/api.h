/* api.h - OpenAI's routes, and routes for tools and operators, in front of a registry of models.
 *
 * Two kinds of threads: the network thread (http_server_run) owns every exchange and does all short work;
 * prep threads parse, render, tokenize and submit. An engine talks to an exchange through its stream only.
 *
 * Start: registry_create, api_create, http_server_create with api_handler(), api_attach, registry_start. The
 * server may then run at once. It answers 503 "loading" until all models of the start are loaded.
 *
 * End: api_drain, http_server_stop, http_server_free, registry_stop, api_stop (joins the
 * prep threads, so no request is submitted after it), registry_close, api_free. */
#ifndef PLATEAU_API_API_H
#define PLATEAU_API_API_H

#include "media/media.h"
#include "base/err.h"
#include "http/http_server.h"

struct api;
struct guard;
struct kv_events;
struct shared_tier;
struct keyring;
struct registry;
struct store;

/* A report of this size needs no memory beyond what the API reserves for itself. */
#define API_REPORT_BYTES 65536

/* http_server_opts.listener of a server whose handler is api_handler(). */
enum api_listener {
    API_LISTENER_MAIN,   /* keys decide */
    API_LISTENER_SOCKET, /* a Unix socket of the process's own user: every request is the admin's */
    API_LISTENER_ADMIN,  /* all routes but the probes (/live, /health, ...) need the admin key */
    API_LISTENER_METRICS /* without a key: /metrics and the probes (/live, /health, ...), no other route */
};

/* Settings that may change while the server runs; 0 selects the default beside each. */
struct api_live {
    uint32_t requests_max; /* at once, those still uploading included; 1024 */
    /* When a request says none; 0: a chat gets the rest of the context, a completion 16. */
    uint32_t max_tokens_default;
    uint32_t keepalive_s;     /* a stream that was silent for this time gets a comment; 10 */
    uint32_t slow_client_s;   /* a client that does not read its reply for this time is dropped; 30 */
    uint32_t stuck_s;         /* an engine without progress for this time is reported unhealthy; 30 */
    uint32_t load_timeout_s;  /* how long a request waits for its model to load; 600 */
    size_t request_bytes_max; /* bytes of `text` that one request may hold; 256 MiB */
};

struct hub_name;

/* 0 selects the default beside each. */
struct api_opts {
    const char *host;           /* the address of the port, for reports; borrowed; NULL: not reported */
    struct ledger *ledger;      /* for /api/memory */
    struct holders *holders;    /* walked by clears and trims; NULL: clears and trims do nothing */
    struct guard *guard;        /* decides when new work is refused; NULL: never */
    struct store *store;        /* the SSD tier, for reports and clears; NULL: no SSD tier */
    struct shared_tier *shared; /* for reports; NULL: no shared tier */
    struct kv_events *events;   /* for reports; NULL: none are published */
    struct account *text; /* pays for requests from their JSON to their reply; its limit is their limit */
    struct account *responses;      /* pays for stored responses and bounds them; NULL: none are stored */
    struct account *conversations;  /* pays for conversations.h and bounds it; NULL: none are kept */
    const char *conversations_file; /* where they are from a stop to the next start; NULL: nowhere */
    struct account *pull;           /* pays for the process that pulls a model; NULL: none are pulled */
    /* With `pull`: lists a pulled model. Returns at once; api_pulled() gets the result. */
    void (*serve_pulled)(void *arg, const struct hub_name *name);
    void *serve_arg;
    struct account *history;     /* pays for api_history_bytes(); NULL: no history, no log for reports */
    uint64_t response_ttl_ns;    /* how long a stored one stays without use; 1 h */
    struct account *threads;     /* pays for the stacks of prep threads; NULL: `text` does */
    struct media_opts media;     /* the api sets threads, done and arg */
    uint32_t choices_max;        /* choices of one request: prompts x n; 128 */
    uint32_t json_depth_max;     /* 64 */
    uint32_t prep_threads;       /* 1 on up to 4 processors, else 2 */
    uint32_t models_max;         /* models of the registry */
    size_t prep_queue_bytes_max; /* bodies that wait to be read; 64 MiB */
    struct api_live live;
    /* Without model keys the models are open. Without admin keys the admin's routes answer on
     * API_LISTENER_SOCKET only. Borrowed; NULL: no keys. */
    const struct keyring *keys;
    /* Origins whose pages may call the API, up to a NULL: cors.h. Only with model keys. Borrowed; NULL:
     * none. */
    const char *const *origins;
    const char *const *warm;   /* --warm, up to a NULL: warm.h. Borrowed; NULL: none */
    bool warms;                /* there are some, or a model has some: a thread more */
    const char *default_model; /* the id of the model that serves unknown and absent names; NULL: none */
    struct registry *registry; /* borrowed; its `changed` leads to api_models_changed() */
};

/* Bytes of `text` that the API reserves before the first request. */
uint64_t api_bytes(const struct api_opts *opts);
/* Bytes of `threads` that it reserves. */
uint64_t api_stack_bytes(const struct api_opts *opts);
/* Returns the bytes of the account `history`: at most 1.25 MiB, whatever the options are. */
uint64_t api_history_bytes(void);
/* 0, -EINVAL, -ENOMEM. The state is API_LOADING. */
int api_create(const struct api_opts *opts, struct api **ret, struct err *e);
/* For http_server_opts; its arg is the api. Before the server is created. */
struct http_handler api_handler(struct api *a);
/* Paths of probes: the server answers them also when it has no connection left. */
extern const char *const api_vital_paths[];
/* Watches the api's mailboxes. 0 or an error of http_server_watch(). */
int api_attach(struct api *a, struct http_server *s);
/* After http_server_free, before any engine_close: ends the prep threads and every exchange. */
void api_stop(struct api *a);
/* After every engine is closed. NULL is fine. */
void api_free(struct api *a);

/* API_LEAVING: requests are served as in API_READY, but the server says that it drains, so that routers
 * choose another one. */
enum api_state { API_LOADING, API_READY, API_LEAVING, API_DRAINING, API_FAILED };

/* Any thread: the state of a model has changed. API_LOADING becomes API_READY when all models of the start
 * are loaded. It becomes API_FAILED when one cannot be, which stops the server. */
void api_models_changed(struct api *a);
/* Any thread, after opts.serve_pulled: the id of the pulled model; NULL: it is not listed, and `why` has the
 * reason. */
void api_pulled(struct api *a, const char *id, const char *why);
/* Any thread. `reason` (may be NULL; cut at 200 bytes) says why the API failed; /health and refusals quote
 * it. */
void api_set_state(struct api *a, enum api_state s, const char *reason);
/* Any thread: API_DRAINING, until at most clock_now_ns() == `ends_ns`: the Retry-After of refusals. */
void api_drain(struct api *a, uint64_t ends_ns);
enum api_state api_state_of(struct api *a);

/* Replaces api_opts.live, where live.requests_max cannot exceed its first value. Network thread, or before it
 * runs. */
void api_set_live(struct api *a, const struct api_live *live);
/* Network thread. `keys` replaces the ring for requests whose header arrives later. The previous ring may be
 * freed. */
void api_set_keys(struct api *a, const struct keyring *keys);

/* Network thread. `origins` replaces api_opts.origins. */
void api_set_origins(struct api *a, const char *const *origins);

/* A short summary of the API's state. Network thread. */
struct api_glance {
    enum api_state state;
    const char *stuck; /* a model that has work and makes no progress; NULL: none */
    uint64_t load_done, load_total;
};
void api_glance(struct api *a, struct api_glance *ret);

/* Any thread: requests that are being received, prepared, computed or sent. */
uint32_t api_requests_now(struct api *a);

#endif
