/* tool_request.h - the grammar of replies to a request with tools: whether there is one, and its source. */
#ifndef PLATEAU_GEN_TOOL_REQUEST_H
#define PLATEAU_GEN_TOOL_REQUEST_H

#include "base/buf.h"

struct gen;

enum tool_request {
    TOOL_REQUEST_NONE,   /* no grammar of calls */
    TOOL_REQUEST_MAY,    /* a call that begins is complete; the reply may do so without a grammar */
    TOOL_REQUEST_MUST,   /* the request needs it: calls are required, or arguments follow schemas */
    TOOL_REQUEST_REFUSED /* g->reject has the reason */
};

/* With TOOL_REQUEST_MUST, g->request->grammar.param names the field that asks. */
enum tool_request tool_request_of(struct gen *g);
void tool_request_write(struct gen *g, struct buf *ret);

#endif
