/* reject.h - why a request gets no answer, in the client's terms.
 *
 * A client's mistake is a value, not an error of ours: the code that finds it fills one of these. A message
 * names the mistake, the limit, and the remedy. An API maps the kind to its status and envelope
 * (reject_http.h). */
#ifndef PLATEAU_GEN_REJECT_H
#define PLATEAU_GEN_REJECT_H

#include <stdbool.h>
#include <stdint.h>

#define REJECT_PREPARATION_S 300 /* limit for one request's preparation */

/* Every error of a request, grouped by the HTTP status that it has. */
enum reject_kind {
    REJECT_NONE,
    /* 400 */
    REJECT_INVALID_JSON,
    REJECT_INVALID_VALUE,
    REJECT_UNSUPPORTED_VALUE, /* a known value that is not supported */
    REJECT_CONTEXT_LENGTH,
    REJECT_GRAMMAR_TOO_COMPLEX, /* while the output was written */
    REJECT_TEMPLATE_ERROR,
    REJECT_TEMPLATE_LIMIT,
    REJECT_TOKENIZER_LIMIT,
    REJECT_INVALID_MEDIA,
    REJECT_MEDIA_FETCH_FAILED,
    REJECT_MEDIA_MISMATCH,
    REJECT_MEDIA_NOT_ALLOWED,
    REJECT_MEDIA_TOO_LARGE, /* one image or video is over a limit of its own */
    REJECT_TOO_MANY_MEDIA,
    /* 401, 403 */
    REJECT_INVALID_API_KEY,
    REJECT_PULL_NOT_ALLOWED,
    /* 404, 405, 408 */
    REJECT_NOT_FOUND,
    REJECT_MODEL_NOT_FOUND,
    REJECT_REQUEST_NOT_FOUND,
    REJECT_RESPONSE_NOT_FOUND,
    REJECT_PREVIOUS_RESPONSE,
    REJECT_ITEM_NOT_FOUND,
    REJECT_METHOD_NOT_ALLOWED,
    REJECT_CLIENT_TOO_SLOW,
    /* 409: an order of an admin */
    REJECT_LOAD_FAILED,
    REJECT_UNLOAD_LOADING,
    REJECT_UNLOAD_PINNED,
    REJECT_UNLOAD_SESSIONS,
    REJECT_PULL_RUNS,
    /* 413 */
    REJECT_MEDIA_MEMORY, /* an image or video needs more than --media-memory */
    REJECT_REQUEST_TOO_LARGE,
    /* 429 */
    REJECT_BUSY,
    REJECT_QUEUE_FULL,
    REJECT_TOO_MANY_REQUESTS,
    /* 499, 500 */
    REJECT_REQUEST_CANCELLED,
    REJECT_ENGINE_ERROR,
    /* 503 */
    REJECT_AGENTS_FULL,
    REJECT_MEMORY_SHORT,
    REJECT_MODEL_FAILED,
    REJECT_MODEL_LOAD_FAILED,
    REJECT_MODEL_LOADING,
    REJECT_MODEL_UNLOADING,
    REJECT_PREPARATION_TIMEOUT,
    REJECT_QUEUE_TIMEOUT,
    REJECT_SHUTTING_DOWN,
    /* 507 */
    REJECT_OUT_OF_MEMORY,
    REJECT_KIND_COUNT
};

struct reject {
    enum reject_kind kind;       /* REJECT_NONE = nothing was wrong */
    char param[64];              /* the field; empty writes null */
    char message[768];           /* always valid UTF-8 */
    uint32_t retry_after_s;      /* 0 = no such header */
    uint32_t tokens, tokens_max; /* REJECT_CONTEXT_LENGTH: least tokens of the prompt, and their limit; 0 =
                                  * the prompt is not too long */
};

/* Fills *r and returns false, so that a check is one line. The first error stays. `param` may be NULL. Text
 * quoted from a client is cut at a character's boundary and loses its control characters. */
bool reject_set(struct reject *r, enum reject_kind kind, const char *param, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* As `reject_set()`, but with the kind's own sentence. */
bool reject_as(struct reject *r, enum reject_kind kind);
/* 400, code "invalid_value". */
bool reject_value(struct reject *r, const char *param, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* 400, code "unsupported_value": known, and not supported here. */
bool reject_unsupported(struct reject *r, const char *param, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The context of a request. */
struct reject_context {
    uint32_t tokens;
    uint32_t reserve; /* tokens beyond, which only compactions may use */
};
#define REJECT_CONTEXT_BYTES 112
/* Writes the options that bound a context into `ret`, which has REJECT_CONTEXT_BYTES. Returns `ret`. */
const char *reject_context_options(const struct reject_context *c, char *ret);
/* 400: the prompt has more than ids_max tokens. */
bool reject_too_long(struct reject *r, const char *param, const struct reject_context *context,
                     uint32_t ids_max);
/* True, and *r is filled: this sentence of the engine says that a grammar is too complex. */
bool reject_too_complex(struct reject *r, const char *sentence);
/* The error of a result of wanted_check(): 499, or 503 when preparation took too long. */
bool reject_unwanted(struct reject *r, int why);

#endif
