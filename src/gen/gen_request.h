/* gen_request.h - what a request asks of a model, in no API's words.
 *
 * An API's reader fills it from a body, the command line from its options. JSON stays where templates read
 * it: messages, tools and template arguments. Pointers without "owned" point into the text of the owner. */
#ifndef PLATEAU_GEN_GEN_REQUEST_H
#define PLATEAU_GEN_GEN_REQUEST_H

#include "base/slice.h"
#include "constraint/grammar_source.h"
#include "media/media.h"
#include "sample/sampler_params.h"
#include "template/chat_cuts.h"

#include <jansson.h>

#define GEN_STOPS_MAX 16 /* ENGINE_STOP_STRINGS_MAX */
#define GEN_MARKS_MAX 8

/* Output of a request. */
enum gen_output {
    GEN_TOKENS, /* jobs that sample tokens */
    GEN_VECTOR, /* a pooled vector of each prompt */
    GEN_SCORE,  /* how well each document answers its query: logits of "yes" and "no" */
    GEN_IDS,    /* the prompt's ids: no job */
    GEN_TEXT    /* the prompt's text, with placeholders for images: no job */
};

/* Numbers that a model's defaults replace when the client gave none: NAN and -1 mean none. */
struct gen_sampling {
    double temperature, top_p, min_p, repetition_penalty;
    int64_t top_k;
    double presence_penalty, frequency_penalty;
    bool has_seed;
    int64_t seed;
    int64_t max_tokens;
    int64_t min_tokens;      /* 0 when absent */
    bool logprobs;           /* return logprobs of the output */
    int64_t top_logprobs;    /* alternatives per token of the output */
    int64_t prompt_logprobs; /* -1: none; else alternatives per token of the prompt */
};

/* Constraint of the output. */
struct gen_grammar {
    const char *param; /* the field that asks for it, for refusals; NULL: no grammar */
    enum grammar_kind kind;
    json_t *value; /* owned: a schema, or a list of texts; of the other kinds a string; NULL: none */
};

/* Which of the tools may be called, and whether the reply has to. */
struct gen_calls {
    bool required;      /* the reply is calls */
    bool single;        /* the reply has no second call: tool_choice names the tool */
    bool strict_unused; /* set by the preparation: arguments of strict tools are not constrained */
    bool failed;        /* no memory for the sets */
    /* Owned, by the name of a tool. */
    json_t *names;  /* the tools that may be called; NULL: all */
    json_t *strict; /* whose arguments follow the schema: true, or false if only where possible; NULL: none */
    json_t *larks;  /* Lark grammars of tools that take one text; NULL: none */
};

/* A summary of the conversation in place of a reply. */
struct gen_compaction {
    json_t *ask; /* owned: the user's text that requests it; NULL: a reply */
    uint32_t at; /* least tokens of the conversation; 0: any */
    bool on;     /* the reply is the summary; set by the preparation, if `at` is not 0 */
};

struct gen_request {
    enum gen_output output;

    /* A conversation, in the form that templates expect. */
    json_t *messages;          /* NULL: a prompt instead */
    const char *messages_name; /* field of the messages, for refusals; NULL: "messages" */
    json_t *media;      /* media of gen_media_input(): images and videos of the messages; NULL: none. Owned */
    json_t *tools;      /* tools in force after the messages; NULL: none, or the model shall call none */
    bool inserts_tools; /* True if messages change the tools: tool_insert.h */
    json_t *head_tools; /* with inserts_tools: tools at the head of the prompt; NULL: none */
    bool tools_unused;  /* set by the rendering: the template has no place for them */
    json_t *template_kwargs;               /* owned */
    struct chat_mark marks[GEN_MARKS_MAX]; /* where the client wants the prefix cache to begin anew */
    uint32_t mark_count;
    bool system_stays; /* messages of the system behind the first turn stay there, or join the user's turn */
    bool add_generation_prompt;
    bool appends;   /* the last message, text of a user, stands behind the rendering of those before it */
    bool continues; /* the last message is the assistant's, and the reply continues its text */
    bool parallel_tool_calls;
    struct gen_calls calls;
    struct gen_compaction compaction;
    const char *reasoning_effort; /* NULL: not given */
    bool effort_unused;           /* set by the rendering: the template has no place for it */
    int enable_thinking;          /* -1: not given */
    int64_t thinking_budget;      /* tokens of reasoning; -1: no limit */
    bool budget_unused; /* set by the preparation: the model's reasoning has no marker that ends it */
    bool parses; /* the reply is a message: reasoning and calls are parsed, tokens may fill the context */

    /* Or a text. */
    json_t *prompt; /* a string, ids, or a list of either */
    uint32_t prompt_count;
    const char *prompt_name; /* field of the prompt, for refusals */

    /* Or, of GEN_SCORE, prompt_count pairs: a string or one of a list, likewise with objects {"text": ...}. A
     * single one stands for all. */
    json_t *queries, *documents;
    const char *instruction; /* NULL: the default */
    int64_t dimensions;      /* dimensions of GEN_VECTOR; 0: all */

    int add_special_tokens; /* -1: a prompt gets them, messages do not */
    int64_t truncate;       /* prompt tokens to keep; 0: all; -1: as many as the context leaves */
    bool truncates_right;   /* keep the first ones, not the last */
    bool truncates_left;    /* the request says so; an encoder keeps the first ones otherwise */
    bool drops_turns;       /* messages: the oldest turns are dropped until the prompt fits */
    uint32_t dropped;       /* set then: messages that were dropped */
    bool tells_length;      /* the refusal of a prompt that is too long has its number of tokens */
    bool clamps;            /* max_tokens beyond the context is lowered, not refused */
    bool prompt_only;       /* no output: the reply has the prompt and its logprobs */

    /* Seconds for which the prefix cache keeps system and tools, and the whole conversation, if it has room;
     * 0: no wish. */
    uint32_t keep_head_s, keep_s;
    bool opens_session; /* the prompt becomes a session, with the request's id */
    bool has_session;   /* this session moves to the request's end */
    uint8_t session_id[16];
    uint64_t agent; /* key of its agent (cache/agents.h); 0: none */
    uint32_t session_ttl_s;
    bool session_below;  /* the SSD tier holds it */
    int session_follows; /* 0: it stays at the end of this prompt */

    struct gen_sampling sampling;
    uint32_t n;
    int32_t priority;
    json_t *logit_bias; /* checked; ids against the vocabulary later */
    struct gen_grammar grammar;
    json_t *allowed_ids; /* checked: the only ids that may be sampled; NULL: all */
    struct slice stops[GEN_STOPS_MAX];
    uint32_t stop_count;
    uint32_t stop_ids[SAMPLER_STOP_MAX];
    uint32_t stop_id_count;
    bool ignore_eos;
    bool speculative;    /* speculative decoding is allowed */
    bool has_repetition; /* the request says how loops are found */
    struct repetition_params repetition;
    bool skip_special_tokens;
    bool include_stop;      /* the stop string stays in the output */
    bool renders;           /* prompts and parameters are resolved, and nothing is computed */
    bool whole;             /* the output is needed at its end only */
    const char *cache_salt; /* NULL: none */
};

/* Sets r->grammar; `value` gets one more reference. A second field that asks for an equal one changes
 * nothing: clients send one grammar under the names of several servers. False: it asks for another. */
bool gen_constrain(struct gen_request *r, const char *param, enum grammar_kind kind, json_t *value);

/* True if the reply may have more than one call. */
static inline bool gen_repeats_calls(const struct gen_request *r)
{
    return r->parallel_tool_calls && !r->calls.single;
}

/* The field that has the conversation. */
static inline const char *gen_messages_name(const struct gen_request *r)
{
    return r->messages_name ? r->messages_name : "messages";
}

/* The tools that stand at the head of the prompt. */
static inline json_t *gen_head_tools(const struct gen_request *r)
{
    return r->inserts_tools ? r->head_tools : r->tools;
}

/* The entries of logit bias that resolve_sampling() may write. */
uint32_t gen_bias_count(const struct gen_request *r);

/* The images and videos of a request: entries of `media`, each an object with kind, at, source and fps (-1:
 * none). The source is a URL, or of a video a list of URLs: its frames. */
uint32_t gen_media_count(const struct gen_request *r);
/* Valid until the sources are dropped. */
struct media_input gen_media_input(const struct gen_request *r, uint32_t index);
/* Releases the sources after their conversion. The count stays. */
void gen_media_drop(struct gen_request *r);

#endif
