/* request.h - a client's request, checked as far as that is possible without the model.
 *
 * request_parse() is a pure function: a body to a struct request, or to the sentence that refuses it. One
 * table (request_fields.c) has all fields, their routes and their bounds. null counts as absent. A known
 * field that is not supported is refused, unless its value requests the default behaviour. An unknown field
 * is ignored, as in vLLM, because clients send extras that their users cannot switch off. The reply lists it
 * in the header `x-ignored-fields`, so that a misspelled name can be found. */
#ifndef PLATEAU_API_REQUEST_H
#define PLATEAU_API_REQUEST_H

#include "gen/reject.h"
#include "gen/request_memory.h"
#include "media/media.h"
#include "sample/sampler.h"

#define REQUEST_STOPS_MAX      16  /* ENGINE_STOP_STRINGS_MAX */
#define REQUEST_STOP_BYTES_MAX 256 /* ENGINE_STOP_STRING_BYTES_MAX */
#define REQUEST_TOOLS_MAX      128
#define REQUEST_IGNORED_BYTES  256
#define REQUEST_TOKENS_MAX     ((int64_t)1 << 24)

enum request_kind {
    REQUEST_CHAT,
    REQUEST_COMPLETION,
    REQUEST_TOKENIZE,
    REQUEST_DETOKENIZE,
    REQUEST_TEMPLATE,
    REQUEST_CLEAR,     /* /api/hot-cache/clear: its body may be empty */
    REQUEST_CLEAR_SSD, /* /api/ssd-cache/clear: likewise */
    REQUEST_TRIM,      /* /api/trim: likewise */
    REQUEST_LOAD,      /* /v1/models/{id}/load: likewise */
    REQUEST_UNLOAD,    /* /v1/models/{id}/unload: likewise */
    REQUEST_KIND_COUNT
};

/* Frees memory or disk, and needs no model. */
static inline bool request_reclaims(enum request_kind kind)
{
    return kind == REQUEST_CLEAR || kind == REQUEST_CLEAR_SSD || kind == REQUEST_TRIM;
}

/* "/v1/chat/completions" */
const char *request_route(enum request_kind kind);

struct request_limits {
    uint32_t json_depth_max;
    uint32_t choices_max; /* prompts x n */
};

/* Numbers that a model's defaults replace when the client gave none: NAN and -1 mean none. */
struct request_sampling {
    double temperature, top_p, min_p, repetition_penalty;
    int64_t top_k;
    double presence_penalty, frequency_penalty;
    bool has_seed;
    int64_t seed;
    int64_t max_tokens;      /* max_completion_tokens is the same */
    int64_t min_tokens;      /* 0 when absent */
    bool logprobs;           /* return logprobs of the output */
    int64_t top_logprobs;    /* alternatives per token of the output */
    int64_t prompt_logprobs; /* -1: none; else alternatives per token of the prompt */
};

struct request {
    enum request_kind kind;
    json_t *root;      /* the body; owns all that points into it below */
    const char *model; /* NULL: the only model */

    /* chat, tokenize, apply-template: normalised by request_messages.c */
    json_t *messages; /* NULL: a prompt instead */
    /* What request_media() reads: the images and videos of the messages; NULL: none. Its own
     * reference. */
    json_t *media;
    json_t *tools; /* NULL: no tools, or tool_choice "none" */
    json_t *template_kwargs;
    bool add_generation_prompt;
    bool parallel_tool_calls;
    const char *reasoning_effort; /* NULL: not given */
    int enable_thinking;          /* -1: not given */

    /* completion, tokenize, detokenize */
    json_t *prompt; /* a string, ids, or a list of either */
    json_t *tokens; /* detokenize */
    uint32_t prompt_count;
    int add_special_tokens; /* -1: the route's default */
    bool return_token_strs;

    struct request_sampling sampling;
    uint32_t n;
    int32_t priority;
    json_t *logit_bias;                    /* checked; ids against the vocabulary later */
    struct slice stops[REQUEST_STOPS_MAX]; /* point into root */
    uint32_t stop_count;
    uint32_t stop_ids[SAMPLER_STOP_MAX];
    uint32_t stop_id_count;
    bool ignore_eos;
    bool speculative; /* speculative decoding is allowed */
    bool skip_special_tokens;
    bool include_stop; /* include_stop_str_in_output */

    bool stream, include_usage, continuous_usage;
    bool return_token_ids;
    const char *cache_salt; /* NULL: none */

    char ignored[REQUEST_IGNORED_BYTES]; /* "a, b": unknown field names; cut when the list is long */
};

/* False: `why` has the error. The caller passes `ret` to request_done() in either case. The body's bytes are
 * not needed afterwards. */
bool request_parse(enum request_kind kind, struct slice body, const struct request_limits *limits,
                   struct request_memory *memory, struct request *ret, struct reject *why);
void request_done(struct request *r);

/* Frees the parts that only the prompt needed: messages, prompt, template arguments. The tools stay (their
 * schemas type the arguments of calls). */
void request_drop_prompt(struct request *r);
/* Frees all of the body of an answered request. Not for the network thread: ten million values take a
 * second. */
void request_drop_all(struct request *r);

/* request_messages.c: brings the history into the form that templates expect, in place. Its images and
 * videos go to the list *media, which is made when the first is found. */
bool request_normalise_messages(json_t *messages, const struct request_limits *limits,
                                struct request_memory *memory, json_t **media, struct reject *why);
bool request_check_tools(const json_t *tools, struct reject *why);

/* request_media.c: an image or a video among the parts of a message. */
uint32_t request_media_count(const struct request *r);
/* Valid until its source is dropped. */
struct media_input request_media(const struct request *r, uint32_t index);
/* Releases the sources after their conversion. The count of images stays. */
void request_drop_sources(struct request *r);

/* True for a part with an image or a video, well formed or not. */
bool request_is_media(const json_t *part);
/* The entry of the list for this part, or NULL with the error. The request's memory is entered already. */
json_t *request_media_read(const json_t *part, const char *at, struct reject *why);
/* "image" or "video": the type that templates know. */
const char *request_media_type(const json_t *part);

#endif
