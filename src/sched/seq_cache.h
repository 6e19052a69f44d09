/* seq_cache.h - a sequence and the prefix cache: the prefix that it reuses, and what it leaves there.
 *
 * Whole pages of a sequence join the prefix index when they have been computed, so others find them while it
 * runs. With recurrent layers the sequence has two states: a step reads one and writes the other. So later
 * steps never overwrite the state at the last page boundary, whether they succeed or not. At a cut, and when
 * the sequence leaves, that state becomes a snapshot. Missing states cost reuse, never the sequence: it
 * continues in the one state that it has. Pages that a window has passed lose the sequence's reference;
 * those in the index stay there as cache. Internal to the scheduler, with the rules of sched.h; engine
 * thread only. */
#ifndef PLATEAU_SCHED_SEQ_CACHE_H
#define PLATEAU_SCHED_SEQ_CACHE_H

#include <stdbool.h>
#include <stdint.h>

struct prefix_hit;
struct sched_opts;
struct sched_seq;

/* Finds the longest prefix that the sequence may reuse. At least one token is left to compute; with
 * logits_all every token is, and there is no hit. */
void seq_cache_find(const struct sched_opts *o, const struct sched_seq *seq, struct prefix_hit *ret);
/* Pages that the group's pool must have for the whole prompt to be read, starting with the hit. Pages of the
 * hit that are referenced already cost the pool nothing. */
uint32_t seq_cache_wants(const struct sched_opts *o, const struct sched_seq *seq,
                         const struct prefix_hit *hit, uint32_t group);
/* Begins a sequence that has no page: takes the hit and a state. 0, or -ENOMEM (there is no state), and then
 * nothing has changed. */
int seq_cache_begin(const struct sched_opts *o, struct sched_seq *seq, const struct prefix_hit *hit);
/* `pages` more pages of each group are about to be taken for a prompt: they are committed at once where that
 * is faster. */
void seq_cache_prepare(const struct sched_opts *o, uint32_t pages);
/* Takes one more page of each group for the sequence's next tokens. 0, or as page_pool_take; then it takes
 * none. */
int seq_cache_extend(const struct sched_opts *o, struct sched_seq *seq);
/* The sequence has just begun, with a page for its next token. If its tokens are whole pages, and the index
 * has the last one too, that page is copied: the last token alone is left to compute. Not with recurrent
 * layers, whose state is not kept there. */
void seq_cache_copy_last(const struct sched_opts *o, struct sched_seq *seq);
/* seq->done has moved: whole pages join the index, windows move, the state is kept at a page boundary. */
void seq_cache_advance(const struct sched_opts *o, struct sched_seq *seq);
/* Releases all pages and states; pages and snapshots that are worth reusing stay in the index. */
void seq_cache_leave(const struct sched_opts *o, struct sched_seq *seq);

/* Tokens of the page at this index, if events may have them; else NULL. */
const uint32_t *seq_cache_announced(const struct sched_seq *seq, uint32_t page);

/* Returns a free state, else the state of the cheapest snapshot, which is evicted; NONE: there is
 * neither. */
uint32_t seq_cache_take_state(const struct sched_opts *o);
/* Number of pages that the prefixes of both have in common. */
uint32_t seq_cache_common_pages(const struct sched_seq *a, const struct sched_seq *b);
/* The next token index at which the sequence's chunk has to end, to keep the state there; UINT32_MAX:
 * none. */
uint32_t seq_cache_next_cut(const struct sched_opts *o, const struct sched_seq *seq);
/* True: `other`, which is prefilling, will soon leave a longer prefix of `seq` than `hit`. */
bool seq_cache_worth_waiting(const struct sched_opts *o, const struct sched_seq *seq,
                             const struct prefix_hit *hit, const struct sched_seq *other);

#endif
