/* json_stream.h - one JSON value as it arrives: where it ends, and what of it may be shown already.
 *
 * The scanner decides where a value ends, so a marker inside a string is text. Bytes are handed on as soon as
 * json_stream_close() can complete them to a whole value: strings in pieces, numbers and words when they are
 * complete, a key with the start of its value. A control character inside a string is escaped, because models
 * write line ends there. After a byte that JSON does not allow the scanner only counts quotes and brackets,
 * and hands everything on unchanged. Memory: the bytes of one key or number, in `held`. */
#ifndef PLATEAU_CHAT_JSON_STREAM_H
#define PLATEAU_CHAT_JSON_STREAM_H

#include "base/buf.h"

#define JSON_STREAM_DEPTH_MAX 256

struct json_stream {
    uint8_t state, word_at, hex_left;
    bool key;    /* the string is a key */
    bool broken; /* not JSON */
    bool done;
    const char *word;                            /* "true", "false" or "null" */
    uint32_t depth;                              /* open brackets */
    uint8_t brackets[JSON_STREAM_DEPTH_MAX / 8]; /* a bit each; 1: an object */
    struct buf held;                             /* read, and not handed on yet */
};

void json_stream_init(struct json_stream *s, size_t bytes_max, const struct charge *charge);
void json_stream_done(struct json_stream *s);
/* Before the next value. */
void json_stream_restart(struct json_stream *s);

/* Reads the value's next bytes and returns how many: all, unless the value ends before (s->done), or has just
 * turned out to be no JSON (s->broken). Appends the certain bytes to `ret`. White space before the value is
 * dropped. */
size_t json_stream_feed(struct json_stream *s, struct slice text, struct buf *ret);
/* The input is over. Appends what completes the value as far as it was handed on. */
void json_stream_close(struct json_stream *s, struct buf *ret);

#endif
