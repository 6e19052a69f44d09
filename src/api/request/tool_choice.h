/* tool_choice.h - what a request says about calls, in the words of no API: gen_request.calls. */
#ifndef PLATEAU_API_TOOL_CHOICE_H
#define PLATEAU_API_TOOL_CHOICE_H

#include <jansson.h>
#include <stdbool.h>

struct reject;
struct request;
struct request_memory;

/* One more tool that may be called; without any, all may. Memory that is missing is noticed by the check. */
void tool_choice_allow(struct request *r, const char *name);
/* The reply is one call of this tool. */
void tool_choice_require(struct request *r, const char *name);
/* The arguments of this tool follow its schema. */
void tool_choice_strict(struct request *r, const char *name);
/* They do where a grammar is possible; a refusal of the schema is none of the request. */
void tool_choice_hold(struct request *r, const char *name);
/* The input of this tool, its only parameter, is a text of the Lark grammar. */
void tool_choice_lark(struct request *r, const char *name, json_t *grammar);
/* After all fields, with r->gen.tools: required calls need tools, named ones must be offered. */
bool tool_choice_check(struct request *r, struct request_memory *memory, struct reject *why);
/* Frees what is noted. */
void tool_choice_drop(struct request *r);

#endif
