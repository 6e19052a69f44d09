/* chat_syntax.h - how a model writes reasoning, content and tool calls: one description of its chat format.
 *
 * Plain data: the parser of replies (chat_format.h) runs on it, and a grammar can be generated from it.
 * Found for a template in this order:
 * 1. a format whose shape no rendering shows, by markers that only it has;
 * 2. the markers that the template itself writes around sentinels (chat_probe.h);
 * 3. a known format, by a marker in the template's text;
 * 4. the generic format, if the template says nothing of tools;
 * 5. content only.
 * Names set by hand come first. A description lives in an arena and is read-only from then on.
 *
 * A reply of shape CHAT_CALLS:
 *
 *     [REASONING_OPEN text REASONING_CLOSE] [TEXT_BEGIN] text [TEXT_END] {section | call}
 *     section = SECTION_BEGIN call... [SECTION_END]
 *     call    = CALL_BEGIN name [ID_BEGIN id] NAME_END arguments CALL_END
 *
 * By the encoding of the arguments:
 *
 *     CHAT_JSON       a JSON object
 *     CHAT_JSON_CALL  no name before it: an object {name_key: name, arguments_key: {...}}, or a list of them
 *     CHAT_TAGGED     {KEY_BEGIN key KEY_END VALUE_BEGIN value VALUE_END}; the tool's schema has the types.
 *                     After KEY_END_JSON instead of KEY_END the value is JSON
 *     CHAT_PYTHON     no name before it: a list [name(key=literal, ...), ...]
 *     CHAT_BRACED     after NAME_END the members of an object: bare keys, strings between QUOTE marks
 *
 * Of shape CHAT_CHANNELS: messages of a header, NAME_END, a body, and SECTION_END or CALL_END. A header may
 * have CHANNEL_BEGIN with the channel's name, and CALL_BEGIN with the recipient of a call. */
#ifndef PLATEAU_CHAT_CHAT_SYNTAX_H
#define PLATEAU_CHAT_CHAT_SYNTAX_H

#include "base/arena.h"
#include "base/err.h"
#include "base/slice.h"

struct json_out;
struct chat_template;
struct tokenizer;

enum chat_shape { CHAT_CONTENT_ONLY, CHAT_CALLS, CHAT_CHANNELS };
enum chat_arguments { CHAT_JSON, CHAT_JSON_CALL, CHAT_TAGGED, CHAT_PYTHON, CHAT_BRACED };
enum chat_found { CHAT_BY_NONE, CHAT_BY_NAME, CHAT_BY_TABLE, CHAT_BY_RENDERING, CHAT_BY_MARKER };

enum chat_marker {
    CHAT_REASONING_OPEN,
    CHAT_REASONING_CLOSE,
    CHAT_TEXT_BEGIN,
    CHAT_TEXT_END,
    CHAT_SECTION_BEGIN,
    CHAT_SECTION_END,
    CHAT_CALL_BEGIN,
    CHAT_ID_BEGIN,
    CHAT_NAME_END,
    CHAT_KEY_BEGIN,
    CHAT_KEY_END,
    CHAT_KEY_END_JSON,
    CHAT_VALUE_BEGIN,
    CHAT_VALUE_END,
    CHAT_CALL_END,
    CHAT_QUOTE,
    CHAT_CHANNEL_BEGIN,
    CHAT_MARKER_COUNT
};
#define CHAT_MARKER_BYTES_MAX 128
#define CHAT_SPECIALS_MAX     24

struct chat_special {
    uint32_t id;
    struct slice text;
    bool hidden; /* decoding that skips special tokens leaves it out */
};

struct chat_syntax {
    const char *tool_format, *reasoning_format; /* names of the tables; "template": read off the template */
    enum chat_found tool_found, reasoning_found;
    enum chat_shape shape;
    enum chat_arguments arguments;
    /* With the white space that the template writes around them, which a reply may leave out; NULL: none. */
    const char *marker[CHAT_MARKER_COUNT];
    /* Members of CHAT_JSON_CALL. name_key NULL: the name is the key, and its value the arguments. */
    const char *name_key, *arguments_key, *id_key;
    bool list;           /* the calls of a section are a JSON list */
    bool bare;           /* a call may begin the reply without a marker */
    bool id_names;       /* the name is written functions.NAME:N, which is the call's id */
    bool plain_names;    /* CALL_BEGIN without a plain name after it is text */
    const char *text_to; /* a call of this name is content */
    const char *opens;   /* the generation prompt ends with this, the reply's first marker; NULL: none */
    /* How the template takes earlier calls: arguments as text instead of an object, empty content as null. */
    bool text_arguments, null_content;
    /* It knows neither tools nor their results: both are written as text of messages, chat_generic.h. */
    bool generic;
    const char *between_parts; /* joins texts of one message; NULL: a line feed */
    bool calls_in_content;     /* it writes none, and those of this format stand in the content as text */
    const char
        *reasoning_member; /* member of an earlier message with its reasoning; NULL: reasoning_content */
    /* It reads none, but writes content as it is: earlier reasoning stands there between its markers. The
     * white space around it is the model's, so the parser keeps it. */
    bool reasoning_in_content, reasoning_in_calls; /* ..._calls: of messages with calls, too */
    bool system_in_place; /* messages of the system within the conversation are written where they stand */
    bool prompt_reasons;  /* the generation prompt of an ordinary request ends inside reasoning */
    /* Markers, or parts of them, that are single tokens of the tokenizer: text does not match them. */
    struct chat_special specials[CHAT_SPECIALS_MAX];
    uint32_t special_count;
};

struct chat_syntax_opts {
    const struct chat_template *template;       /* NULL: content only, unless a name says otherwise */
    const struct tokenizer *tokenizer;          /* NULL: no tokens, all markers are text */
    uint32_t vocab;                             /* the model's token ids are below it; others are text */
    const char *tool_format, *reasoning_format; /* names that override; NULL or "auto": find it */
};

/* Finds the description. `a` keeps it; `scratch` is used while templates are rendered. 0, -EINVAL (an unknown
 * name; `e` lists the names), -ENOMEM. */
int chat_syntax_find(struct arena *a, struct arena *scratch, const struct chat_syntax_opts *opts,
                     struct chat_syntax *ret, struct err *e);
/* A format of the tables; reasoning_format NULL: the one that belongs to it. 0 or -EINVAL. */
int chat_syntax_named(const char *tool_format, const char *reasoning_format, struct chat_syntax *ret,
                      struct err *e);
/* The name of a tool format, in the order of the table; NULL after the last. */
const char *chat_syntax_tool_name(uint32_t index);

/* True when this rendered prompt ends inside reasoning: its last opening marker comes after the last closing
 * one, and only white space follows it. */
bool chat_syntax_prompt_reasons(const struct chat_syntax *s, struct slice rendered);

/* The reply's reasoning is over in the prompt: it ends with the closing marker and white space. */
bool chat_syntax_prompt_reasoned(const struct chat_syntax *s, struct slice rendered);

/* A marker without the white space around it, unless it is a line feed alone. NULL gives an empty one. */
struct slice chat_syntax_bare(const char *marker);

/* The longest special token whose text stands at the start of `text`; its index in s->specials, or
 * UINT32_MAX. */
uint32_t chat_syntax_special_at(const struct chat_syntax *s, struct slice text);
/* The special token's index in s->specials; UINT32_MAX: none. */
uint32_t chat_syntax_special(const struct chat_syntax *s, uint32_t id);

/* Puts members of an object: the formats' names, how they were found, and the markers. */
void chat_syntax_describe(const struct chat_syntax *s, struct json_out *j);

#endif
