/* client_ids.h - names that a client or a router gives a request: x-request-id, and W3C's traceparent.
 *
 * Both are returned and logged as they came, beside the server's own id: replies, sessions and stored
 * responses are named by that one alone, which nobody can choose. A value of another form is left out. */
#ifndef PLATEAU_API_CLIENT_IDS_H
#define PLATEAU_API_CLIENT_IDS_H

#define CLIENT_ID_BYTES    65 /* 64 letters, digits and -_.:/+@, and a zero */
#define CLIENT_TRACE_BYTES 56

struct http_request;

/* Empty: none was given. */
struct client_ids {
    char request[CLIENT_ID_BYTES], trace[CLIENT_TRACE_BYTES];
};

/* A value as the log has it: "-" if none was given. */
static inline const char *client_ids_logged(const char *value)
{
    return value[0] ? value : "-";
}

void client_ids_read(const struct http_request *r, struct client_ids *ret);
/* Sets the reply's x-request-id, which is `own` without one of the client's, and traceparent. */
void client_ids_return(const struct client_ids *ids, const char *own, struct http_request *r);

#endif
