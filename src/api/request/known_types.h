/* known_types.h - the types of blocks, items, parts and tools that a request may have, the beta features that
 * it may ask for, and what becomes of each.
 *
 * The converters of Messages and Responses look a type up here and nowhere else, and docs/api.md has the same
 * tables. A type without a row has the last row, "*": newer clients send newer types, and a request is
 * refused only where its answer would be that to another question. */
#ifndef PLATEAU_API_KNOWN_TYPES_H
#define PLATEAU_API_KNOWN_TYPES_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct reject;
struct request;

enum type_fate {
    TYPE_CONVERTED, /* the prompt has it */
    TYPE_AS_TEXT,   /* its text, or a line that it was left out; named in x-ignored-fields */
    TYPE_IGNORED,   /* left out; named in x-ignored-fields */
    TYPE_REFUSED    /* 400 */
};

/* How a converted type is read. */
enum type_kind {
    TYPE_OTHER, /* a type that is not converted */
    TYPE_TEXT,
    TYPE_IMAGE,
    TYPE_DOCUMENT,
    TYPE_SEARCH_RESULT,
    TYPE_RESULT, /* result of a tool */
    TYPE_REFERENCE,
    TYPE_THINKING,
    TYPE_CALL,
    TYPE_COMPACTION,
    TYPE_TRIGGER,  /* begins a compaction */
    TYPE_ADDITION, /* tools that a message brings */
    TYPE_REMOVAL,  /* tools that a message takes away */
    TYPE_SEARCH,   /* search for tools */
    TYPE_FOUND,    /* tools that a search found */
    TYPE_MESSAGE,
    TYPE_CUSTOM,
    TYPE_SHELL,
    TYPE_FUNCTION,
    TYPE_NAMESPACE,
    TYPE_CLIENT_TOOL, /* with a schema of the server */
    TYPE_TOOLSET,
    TYPE_FEATURE /* a beta feature, which the server has */
};

struct known_type {
    const char *name; /* "*" stands for any text, once */
    enum type_fate fate;
    enum type_kind kind;
    const char *say; /* words of the document; for a refused type the reason, which its error has too */
};

struct type_table {
    const char *title; /* name of these types in docs/api.md */
    const char *says;  /* heading of `say` there */
    const char *param; /* before the type in x-ignored-fields */
    const struct known_type *rows;
    size_t count;
};

extern const struct type_table messages_user_types, messages_assistant_types, messages_system_types,
    messages_tool_types, messages_beta_types;
extern const struct type_table responses_item_types, responses_part_types, responses_tool_types;
/* All of them, in the order of the document. */
extern const struct type_table *const known_type_tables[];
#define KNOWN_TYPE_TABLES 8

/* The first row that the type matches; every table ends with "*". */
const struct known_type *known_type_find(const struct type_table *t, const char *type);
/* Lists the type in x-ignored-fields. */
void known_type_note(struct request *r, const struct type_table *t, const char *type);
/* Refuses it, with the row's reason. False. */
bool known_type_refuse(const struct known_type *row, const char *at, const char *type, struct reject *why);
/* The text of an object of such a type, or a line that a part of this type was left out. A new reference;
 * NULL: no memory. */
json_t *known_type_text(const json_t *object, const char *type);

#endif
