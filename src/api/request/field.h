/* field.h - the fields of request bodies: tables, and readers of plain values.
 *
 * A group is a table of fields. A dialect has a group of its own fields, and refers to the groups that it
 * shares: fields_generation, and the groups of its API. null counts as absent. A known field that is not
 * supported is refused, unless its value requests the default behaviour: ignoring it would answer another
 * question than the client's. An unknown field is ignored, as in vLLM, because clients send extras that their
 * users cannot switch off. The reply lists it in the header `x-ignored-fields`, so that a misspelled name can
 * be found. */
#ifndef PLATEAU_API_FIELD_H
#define PLATEAU_API_FIELD_H

#include "constraint/grammar_source.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct field;
struct reject;
struct request;
struct request_form;
struct request_limits;
/* Fills *r, or refuses the value. `v` is not null. */
typedef bool field_read_fn(struct request *r, const struct field *f, json_t *v, struct reject *why);

struct field {
    const char *name;
    field_read_fn *read;
    size_t at;       /* offset in struct request, for the plain readers */
    double min, max; /* bounds of numbers */
    const char *say; /* reason of the refusal */
    bool prompt;     /* only the prompt needs its value, which is freed when that is tokenized */
};

struct field_group {
    const struct field *fields;
    size_t count;
};

#define FIELD_AT(member)       offsetof(struct request, member)
#define FIELD_SAMPLING(member) FIELD_AT(gen.sampling.member)
#define FIELD_MODEL                                                                                          \
    {                                                                                                        \
        "model", field_string, FIELD_AT(model)                                                               \
    }
#define FIELD_ADD_SPECIAL_TOKENS                                                                             \
    {                                                                                                        \
        "add_special_tokens", field_tristate, FIELD_AT(gen.add_special_tokens)                               \
    }

/* Fields of every route that generates: sampling, limits, delivery. */
extern const struct field_group fields_generation;
/* Fields of OpenAI's completions and chats; and the conversation of chats, which /tokenize and
 * /apply-template read too. */
extern const struct field_group fields_openai, fields_openai_conversation;
/* Fields that constrain the output of OpenAI's completions and chats. */
extern const struct field_group fields_grammar;
/* Checks the fields of `fields_openai` against each other. */
bool fields_openai_check(struct request *r, struct reject *why);

/* ---- plain values, to the member at f->at ---- */

field_read_fn field_bool;      /* bool */
field_read_fn field_tristate;  /* int: 0 or 1 */
field_read_fn field_real;      /* double, from f->min to f->max */
field_read_fn field_integer;   /* int64_t, likewise */
field_read_fn field_string;    /* const char *, without a zero byte */
field_read_fn field_cache_key; /* a string that names the client's agent: gen.agent */

/* The limit of a reply's length, under f->name; and stop strings, one or a list. */
field_read_fn field_max_tokens, field_stop;
/* A conversation. */
field_read_fn field_messages;
/* vLLM's constraint of the output, on every route that generates. */
field_read_fn field_structured_outputs;
/* How prompts are truncated, and in which order requests go. */
field_read_fn field_truncation, field_truncation_side, field_priority;

/* Labels without effect: the type is checked, the value is dropped. */
field_read_fn field_accept_string, field_accept_object;
/* The time to keep the conversation in the prefix cache: OpenAI's retention, and its object with a ttl. */
field_read_fn field_cache_retention, field_cache_options;
/* Seconds of a ttl such as "5m" or "1h", at most a day; 0: not a ttl. */
uint32_t field_ttl_s(const json_t *v);
/* The id of a session, "sess_...". False: another text. */
bool field_session_id(struct slice text, uint8_t ret[16]);
/* Accepted without effect: the name is listed in `ignored`, unless the value is off as below. */
field_read_fn field_ignore_unless_off;

/* ---- refused, because of f->say ---- */

field_read_fn field_refuse;
/* Unless the value switches the feature off: false, empty, or the number f->min. */
field_read_fn field_refuse_unless_off;
field_read_fn field_refuse_unless_true;

/* ---- constraints of the output, for other readers ---- */

/* Sets the request's grammar, under the name `param`; refused when it has one. `value` gets one more
 * reference. */
bool field_constrain(struct request *r, const char *param, enum grammar_kind kind, json_t *value,
                     struct reject *why);
/* OpenAI's object {"name", "schema", "strict", "description"}. */
bool field_named_schema(struct request *r, const char *param, const char *schema_param, const json_t *format,
                        struct reject *why);

/* ---- for other readers ---- */

/* An integer; 5.0 is one too, as some clients write it. */
bool field_integer_of(const json_t *v, int64_t *ret);
/* A boolean, null, or not there. */
bool field_is_flag(const json_t *v);
/* The string of that name in an object; "" if it has no such string. */
const char *field_string_in(const json_t *object, const char *name);
/* {"type": "text", "text": text}: a part of a message's content. New; NULL: no memory. */
json_t *field_text_part(json_t *text);

/* A word that advises, and changes nothing that the answer has to be. One that is not among `known`, a list
 * that ends with NULL, counts as absent and is listed under the name `param`: newer APIs have newer words.
 * *ret: NULL when absent. False: it is not a string. */
bool field_take_hint(struct request *r, const char *param, const json_t *v, const char *const *known,
                     const char **ret, struct reject *why);
/* How long a reply shall be: "medium" is the model's own length, other words have no effect and are listed
 * under the name `param`. */
bool field_take_verbosity(struct request *r, const char *param, const json_t *v, const char **ret,
                          struct reject *why);
/* How much the model shall think, into gen.reasoning_effort. */
bool field_take_effort(struct request *r, const char *param, const json_t *v, struct reject *why);
/* The class of service: there is one. */
field_read_fn field_service_tier;

/* Adds a name to r->ignored, once. One that has no place there, or is not a plain word, is left out. */
void field_note_ignored(struct request *r, const char *name);

/* ---- tables ---- */

/* `groups` ends with NULL. NULL: none of them has the field. */
const struct field *field_find(const struct field_group *const *groups, const char *name);
/* Reads every field of r->root into r. False: `why` says it. */
bool fields_read(const struct request_form *form, const struct request_limits *limits, struct request *r,
                 struct reject *why);

#endif
