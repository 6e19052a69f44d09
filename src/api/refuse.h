/* refuse.h - refusals of requests that are not exchanges: the answer, and its trace. Network thread. */
#ifndef PLATEAU_API_REFUSE_H
#define PLATEAU_API_REFUSE_H

#include "api/api_state.h"
#include "api/reject_http.h"

/* Answers with `why`. `id`: the request's, or empty. */
void refuse_request(struct api *a, struct http_request *r, const char *id, const struct auth *auth,
                    const struct reject_envelope *envelope, const struct reject *why);

/* The HTTP layer answers as `w` says: leaves the trace. */
void refuse_note(struct api *a, const struct http_request *r, const struct http_wording *w);

#endif
