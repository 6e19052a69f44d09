/* http_raw.h - the framing of a client's bytes, checked byte by byte.
 *
 * One struct http_raw follows one connection from its first byte on: request lines, headers, bodies of a
 * length, chunks and trailers, one request after the other. It knows the end of each request and accepts
 * only bytes with one reading. Where RFC 9112 allows leniency (a line end without CR, a folded line,
 * blanks around names, numbers with signs), it reports a fault. With http_raw_keep() it also keeps the head
 * of the request that is being read. Pure: no I/O, no clock, no allocation, and the cut of the bytes into
 * pieces changes nothing. */
#ifndef PLATEAU_HTTP_HTTP_RAW_H
#define PLATEAU_HTTP_HTTP_RAW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum http_fault {
    HTTP_FAULT_NONE,
    HTTP_FAULT_TLS,          /* a TLS handshake */
    HTTP_FAULT_REQUEST_LINE, /* not METHOD SP TARGET SP HTTP/d.d */
    HTTP_FAULT_REQUEST_END,  /* a CR after the request line, and no LF */
    HTTP_FAULT_TARGET,       /* a blank or a control character in the target */
    HTTP_FAULT_TARGET_LONG,  /* the request line alone exceeds header_bytes_max */
    HTTP_FAULT_VERSION,      /* neither HTTP/1.0 nor HTTP/1.1 to 1.9 */
    HTTP_FAULT_LINE_END,     /* CR without LF, or LF without CR */
    HTTP_FAULT_CONTROL,      /* NUL or another control character in a value */
    HTTP_FAULT_FOLD,         /* a header line that begins with a blank */
    HTTP_FAULT_NAME,         /* an invalid header name, or one not directly followed by a colon */
    HTTP_FAULT_HEADER_LONG,  /* more than header_bytes_max */
    HTTP_FAULT_FIELDS,       /* more than field_bytes_max */
    HTTP_FAULT_DUPLICATE,    /* a second one of a header that may stand once */
    HTTP_FAULT_HOST,         /* an invalid Host */
    HTTP_FAULT_HOST_MISSING, /* HTTP/1.1 without Host */
    HTTP_FAULT_LENGTH,       /* Content-Length is not a row of digits */
    HTTP_FAULT_LENGTH_HUGE,  /* Content-Length does not fit into 63 bits */
    HTTP_FAULT_ENCODING,     /* Transfer-Encoding is not "chunked" */
    HTTP_FAULT_ENCODING_1_0, /* Transfer-Encoding in HTTP/1.0 */
    HTTP_FAULT_TWO_LENGTHS,  /* Content-Length and Transfer-Encoding */
    HTTP_FAULT_CHUNK,        /* a chunk's size, extension or end */
    HTTP_FAULT_TRAILER,      /* a header about framing or access in the trailer */
    HTTP_FAULTS
};

/* Bytes of field_bytes_max for a header line, a query argument or a cookie. */
#define HTTP_RAW_FIELD_BYTES 64

struct http_raw_limits {
    size_t header_bytes_max; /* request line, headers and trailers of one request */
    size_t field_bytes_max;  /* HTTP_RAW_FIELD_BYTES for each header, query argument and cookie, and a copy of
                                the cookies */
};

/* One header, or one argument of the query: offsets into http_head.text, and bytes. */
struct http_field {
    uint32_t name, name_bytes, value, value_bytes;
};

/* The head of one request: method, target and headers as they came, without the blanks around values. `text`
 * and `fields` point to memory of the caller. */
struct http_head {
    char *text;                /* header_bytes_max bytes: the method, the target, then names and values */
    struct http_field *fields; /* fields_max of them: headers, then the arguments of http_target_read() */
    uint32_t fields_max;       /* at least field_bytes_max / HTTP_RAW_FIELD_BYTES */
    uint32_t text_bytes, method_bytes, target_bytes;
    uint32_t header_count, argument_count;
    size_t bytes;    /* from the first byte to the end of the empty line */
    uint64_t length; /* bytes of a body that is not chunked */
    bool http_1_0, chunked;
};

/* Bits of http_raw.events. */
enum http_raw_event {
    HTTP_RAW_HEAD = 1, /* the head is whole */
    HTTP_RAW_BODY = 2, /* bytes of the body: the last payload_bytes taken */
    HTTP_RAW_END = 4   /* the request is whole */
};

#define HTTP_RAW_NAME_MAX 17 /* the longest name that is looked for: transfer-encoding */

struct http_raw {
    const struct http_raw_limits *limits;
    struct http_head *kept; /* NULL: nothing is kept */
    uint8_t state;
    uint8_t events; /* enum http_raw_event, of the last http_raw_feed() */
    uint8_t fault;  /* enum http_fault; once set, it stays */
    /* State of the request that is being read. */
    bool head; /* its method is HEAD */
    bool http_1_0, chunked, trailer;
    bool query;                   /* the target's '?' has come */
    bool value_over;              /* a blank after the value of a header that may hold none */
    uint8_t field;                /* which of the known headers this line is */
    uint8_t seen;                 /* bit by known header */
    uint8_t matched;              /* characters of a fixed text */
    uint8_t name_bytes;           /* HTTP_RAW_NAME_MAX + 1 = longer */
    char name[HTTP_RAW_NAME_MAX]; /* name of the method or the header; small letters */
    uint32_t line_bytes;          /* bytes of a chunk's size and extension */
    uint64_t length;              /* Content-Length; a chunk's size */
    uint64_t left;                /* bytes left of the body or chunk */
    size_t header_bytes, field_bytes;
    size_t payload_bytes; /* bytes of the body, with which the bytes that the last http_raw_feed() took end */
    /* Since the connection began. */
    uint64_t headers, requests; /* that are whole */
};

/* `limits` outlives it. */
void http_raw_init(struct http_raw *w, const struct http_raw_limits *limits);
/* Keeps the head of each request in `h`, which outlives `w`, until the first byte of the next request. Now it
 * is empty. */
void http_raw_keep(struct http_raw *w, struct http_head *h);
/* Reads on. Returns the number of bytes before a fault: all of them, or, when w->fault is set by one,
 * those of the requests that end before the faulty one. With http_raw_keep() it returns after the first
 * events, or at the end of the bytes. Not to be called after a fault. */
size_t http_raw_feed(struct http_raw *w, const char *bytes, size_t len);
/* Between requests: nothing of the next one has come. */
bool http_raw_rests(const struct http_raw *w);

#endif
