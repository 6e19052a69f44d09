/* media_request.h - a request's images: when they are asked for, waited for, put into its prompt, and let
 * go. */
#ifndef PLATEAU_API_MEDIA_REQUEST_H
#define PLATEAU_API_MEDIA_REQUEST_H

#include "api/exchange.h"
#include "api/media_prompt.h"

/* On a prep thread, with the model leased. True: there are none, or they are there. False: x->waits for them,
 * or x->reject says why not. */
bool media_request_ready(struct exchange *x);

/* On the network thread, while x waits. 0: they are there; -EAGAIN; -ECANCELED: x->reject says why they will
 * not be. */
int media_request_look(struct exchange *x, uint64_t now_ns);

/* On a prep thread: the request's prompt, rendered, with its images in their places. `text` and `cuts` are
 * of the rendering; what stands there afterwards is the text with videos written out. */
bool media_request_text(struct exchange *x, struct buf *text, struct chat_cuts *cuts);
/* Its tokens: each placeholder becomes as many as its image takes. At most ids_max. */
bool media_request_ids(struct exchange *x, uint32_t ids_max, struct prompt_ids *p);

/* The engine holds what it needs, or nobody needs it. */
void media_request_done(struct exchange *x);

#endif
