/* agent_key.h - which agent a conversation's request is of, for the places of agents (cache/agents.h). */
#ifndef PLATEAU_API_AGENT_KEY_H
#define PLATEAU_API_AGENT_KEY_H

#include <stdint.h>

struct exchange;

/* Returns the key of the request's session, else of the client's prompt_cache_key or metadata.user_id, else
 * of the conversation's first message of a user. 0: the request is not a conversation's, or only prepares
 * one. While its messages are there. */
uint64_t agent_key_find(const struct exchange *x);

#endif
