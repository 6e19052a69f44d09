/* media_request.h - a request's images: submitted, waited for, put into its prompt, and released. */
#ifndef PLATEAU_GEN_MEDIA_REQUEST_H
#define PLATEAU_GEN_MEDIA_REQUEST_H

#include "gen/gen.h"

/* On a prep thread, with the model leased. PREPARE_DONE: the request needs no images. */
enum prepare media_request_begin(struct gen *g);

/* While the request waits. 0: the images are ready; -EAGAIN: not yet; -ECANCELED: g->reject has the
 * reason. */
int media_request_poll(struct gen *g, uint64_t now_ns);

/* On a prep thread: puts the images into the request's rendered prompt. `text` and `cuts` are of the
 * rendering; afterwards they are of the text with videos written out. False: g->reject has the reason. */
bool media_request_text(struct gen *g, struct buf *text, struct chat_cuts *cuts);
/* Replaces each placeholder among the prompt's tokens by the tokens of its image. At most ids_max in all.
 * False: g->reject has the reason. */
bool media_request_ids(struct gen *g, uint32_t ids_max, struct prompt_ids *p);

/* The prompts' lists of images, whose prompts are made anew. */
void media_request_drop(struct gen *g);

/* Releases the images: the engine has references to those it needs, or the request has ended. */
void media_request_done(struct gen *g);

#endif
