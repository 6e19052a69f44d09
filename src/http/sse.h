/* sse.h - server-sent events (text/event-stream) into a buffer.
 *
 * A line break inside the data becomes a further `data:` line, as the format demands; everything else is
 * unchanged. The buffer remembers whether anything did not fit. */
#ifndef PLATEAU_HTTP_SSE_H
#define PLATEAU_HTTP_SSE_H

#include "base/buf.h"

#define SSE_CONTENT_TYPE "text/event-stream"

/* "data: ...\n\n" */
void sse_data(struct buf *b, struct slice data);
/* ": ...\n\n", which clients ignore: keeps a silent stream alive. No line break inside. */
void sse_comment(struct buf *b, const char *text);

#endif
