/* refuse.h - refusals of requests that are not exchanges: the answer, and its trace. Network thread. */
#ifndef PLATEAU_API_REFUSE_H
#define PLATEAU_API_REFUSE_H

struct api;
struct auth;
struct http_request;
struct http_wording;
struct reject;
struct reject_envelope;

/* Answers with `why`. `id`: the request's, or empty. */
void refuse_request(struct api *a, struct http_request *r, const char *id, const struct auth *auth,
                    const struct reject_envelope *envelope, const struct reject *why);

/* The HTTP layer answers as `w` says: leaves the trace. */
void refuse_note(struct api *a, const struct http_request *r, const struct http_wording *w);

#endif
