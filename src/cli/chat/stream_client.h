/* stream_client.h - requests to a server that answer with server-sent events, any number at once. Main
 * thread. */
#ifndef PLATEAU_CLI_STREAM_CLIENT_H
#define PLATEAU_CLI_STREAM_CLIENT_H

#include "base/buf.h"
#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct admin_client;
struct curl_slist;

#define STREAM_LINE_BYTES_MAX ((size_t)16 << 20) /* limit of one event, and of an error's body */

struct stream_request {
    /* Filled by the caller, and borrowed until the run has ended. */
    const struct admin_client *client;
    const char *path, *body; /* body: JSON */
    bool whole;              /* the answer is one JSON text, given as one event */
    /* The data of one event. Not called for "[DONE]". */
    void (*event)(void *arg, const json_t *data);
    void *arg;
    /* The result: 0, -ECONNREFUSED, -EPROTO (the server refused: `e` has its sentence), -E2BIG (the
     * context is too short for the prompt), -EIO, -ENOMEM,
     * -ECANCELED. */
    int result;
    unsigned status; /* 0: none came */
    bool done;       /* "[DONE]" came */
    struct err e;
    /* Private. */
    void *handle;
    struct curl_slist *headers;
    struct buf line;
};

struct stream_usage {
    uint32_t prompt_tokens, completion_tokens, cached_tokens;
};
/* Reads the usage of an event. False: it has none, and `ret` stays as it is. */
bool stream_usage_of(const json_t *data, struct stream_usage *ret);

/* Runs the requests at once until each has ended. stopped (may be NULL) is asked at least every 50 ms; when
 * it says so, the open requests are closed, and their result is -ECANCELED. 0, or -ENOMEM: nothing ran. */
int stream_client_run(struct stream_request *requests, uint32_t count, bool (*stopped)(void), struct err *e);

#endif
