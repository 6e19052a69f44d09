/* media_request.h - a request's images: submitted, waited for, put into its prompt, and released. */
#ifndef PLATEAU_API_MEDIA_REQUEST_H
#define PLATEAU_API_MEDIA_REQUEST_H

#include "api/exchange.h"
#include "gen/media_prompt.h"

/* On a prep thread, with the model leased. True: the request has no images, or they are ready. False:
 * x->waits for them, or x->reject has the reason. */
bool media_request_ready(struct exchange *x);

/* On the network thread, while x waits. 0: the images are ready; -EAGAIN: not yet; -ECANCELED: x->reject has
 * the reason. */
int media_request_look(struct exchange *x, uint64_t now_ns);

/* On a prep thread: puts the images into the request's rendered prompt. `text` and `cuts` are of the
 * rendering; afterwards they are of the text with videos written out. False: x->reject has the reason. */
bool media_request_text(struct exchange *x, struct buf *text, struct chat_cuts *cuts);
/* The same for its tokens: each placeholder becomes the tokens that its image takes. At most ids_max in
 * all. */
bool media_request_ids(struct exchange *x, uint32_t ids_max, struct prompt_ids *p);

/* Releases the images: the engine has references to those it needs, or the request has ended. */
void media_request_done(struct exchange *x);

#endif
