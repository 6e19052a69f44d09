/* agents.h - places of agents: a bounded table. Each place keeps the prefixes of its agent from eviction.
 *
 * An agent is a tenant's number and a key, which the caller makes of what its requests say. Its first request
 * takes a place, or is refused when all are taken. The place is free again when no request of the agent has
 * run for `idle_ns`, or by agents_end().
 *
 * A place holds the ends of its agent's last AGENT_ENDS conversations: of one, and of a helper that it has
 * started. An end moves with a request that continues it; else the least recently used one is replaced. Both
 * together have at most tokens_max tokens, what they share counted twice. The plan reserves that much for
 * each place (memory/plan.h), so a place never waits for memory. Beyond it a conversation is cached as any
 * other.
 *
 * Pure: time is a number. A walk along a chain takes nanoseconds a page. Bound: 48 bytes a place and 256, in
 * the arena of the caller. Engine thread only. */
#ifndef PLATEAU_CACHE_AGENTS_H
#define PLATEAU_CACHE_AGENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct agents;
struct arena;
struct prefix_index;

#define AGENT_ENDS 2 /* conversations that a place holds */

struct agents_opts {
    struct prefix_index *index;
    uint32_t count_max;  /* places */
    uint32_t tokens_max; /* tokens that a place holds at most */
    uint64_t idle_ns;    /* a place without requests is free after this time */
};

size_t agents_arena_bytes(uint32_t count_max);
/* 0 or -ENOMEM. */
int agents_create(struct arena *arena, const struct agents_opts *opts, struct agents **ret);
/* Frees all places, whose requests have ended. Before the index is done. NULL is fine. */
void agents_done(struct agents *a);

struct agent_id {
    uint64_t tenant, key;
};

/* A request of the agent begins. 0, or -ENOSPC: all places are taken; `*free_ns` is when the first one may be
 * free. */
int agents_enter(struct agents *a, const struct agent_id *id, uint64_t now_ns, uint64_t *free_ns);
/* A request that has entered computed the prefix up to this node (NONE: nothing); a user references it. */
void agents_hold(struct agents *a, const struct agent_id *id, uint32_t node);
/* A request that has entered has ended. A place that holds nothing is free at once if that request was not
 * `served`. */
void agents_leave(struct agents *a, const struct agent_id *id, uint64_t now_ns, bool served);
/* The agent's place is not free before that time. Nothing happens if the agent has no place. */
void agents_keep(struct agents *a, const struct agent_id *id, uint64_t until_ns);
/* Frees the agent's place, at the end of its requests if some run. False: the agent has no place. */
bool agents_end(struct agents *a, const struct agent_id *id);
/* Frees one place whose time has come. False: no place is due. */
bool agents_expire(struct agents *a, uint64_t now_ns);
/* When the next place is free; UINT64_MAX: no place is idle. */
uint64_t agents_due_ns(const struct agents *a);

struct agents_numbers {
    uint32_t count, running, count_max; /* running: places with a request */
    uint32_t tokens_max;
    uint64_t until_ns;                /* when the last idle place is free; 0: no place is idle */
    uint64_t tokens;                  /* tokens that places hold, shared ones each time */
    uint64_t taken, refused, expired; /* since creation */
};
void agents_numbers(const struct agents *a, struct agents_numbers *ret);

/* Copies the agents that have a place, into ret[count_max]. Returns how many. */
uint32_t agents_list(const struct agents *a, struct agent_id *ret);

/* Asserts every invariant. */
void agents_check(const struct agents *a);

#endif
