/* pulls.h - the pull of a model that an administrator ordered: one at a time, in a process of its own.
 *
 * A pull belongs to the server: it goes on when the client that ordered it leaves, until it ends, is
 * cancelled, or the server stops. Its memory is reserved in its account while it runs. What it fetched
 * stays after each end, and a second order goes on from there. A pull is done when the server lists its
 * model, or cannot. Network thread. */
#ifndef PLATEAU_API_PULLS_H
#define PLATEAU_API_PULLS_H

#include "hub/hub_child.h"
#include "hub/hub_name.h"
#include "registry/model_id.h"

struct api;
struct json_out;
struct reject;

/* Serving: all is here, and the server looks at it. */
enum pulls_state { PULLS_NONE, PULLS_RUNNING, PULLS_SERVING, PULLS_DONE, PULLS_FAILED, PULLS_CANCELLED };

/* Outcome that api_pulled() reported. */
struct pulls_served {
    bool is_told;
    char id[MODEL_ID_BYTES], why[512]; /* "": not served, and why */
};

struct pulls {
    enum pulls_state state;
    struct hub_child child;
    uint64_t reserved_bytes; /* in the account */
    uint64_t cancelled_ns;   /* when its process was asked to end; 0: it was not */
    /* The last pull. */
    char model[HUB_ID_BYTES + HUB_REVISION_BYTES + 2]; /* the name as ordered */
    char phase[16], commit[64], error[512];
    char trying_again[512];    /* why a request waits before it is made again; "": none does */
    char family[64], form[96]; /* family and form in the plan; "": not known yet */
    uint64_t began_ns, ended_ns;
    uint64_t bytes, bytes_total, fetched;
    uint64_t first_bytes, first_ns; /* at the first progress that fetched: for the rate */
    uint64_t floor_bytes;
    uint32_t files, files_total, context;
    bool fits;
    struct pulls_served served; /* result of serving the model of a pull that is done */
};

/* Starts the pull that a body orders: {"model": "ORG/NAME[@REVISION]", "anyway": false}. False: `why`. */
bool pulls_order(struct api *a, struct slice body, struct reject *why);
/* Asks the running pull to end. False: none runs. */
bool pulls_cancel(struct api *a);
/* Whether the pulled model is listed by now. */
void pulls_poll(struct api *a);
/* The state of the last pull, as one object. */
void pulls_write(struct api *a, struct json_out *j, const char *key);
/* Kills a process that does not end although it was asked to. */
void pulls_tick(struct api *a, uint64_t now_ns);
/* The server drains. */
void pulls_drain(struct api *a);
/* After the server is freed: the process ends now. */
void pulls_close(struct api *a);

#endif
