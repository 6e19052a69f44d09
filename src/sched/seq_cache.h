/* seq_cache.h - what a sequence takes from the prefix index, and what it leaves there.
 *
 * A sequence's whole pages join the index as soon as they are computed, so that others find them while it
 * runs. With recurrent layers the sequence has two states: a step reads one and writes the other, so the
 * state at the last page boundary is never overwritten by the steps behind it, whether they succeed or not.
 * At a cut, and when the sequence leaves, that state becomes a snapshot. States that are missing cost reuse,
 * never the sequence: it then goes on in the one that it has. Pages that a window leaves behind lose the
 * sequence's reference; those in the index stay there as cache. Parts of the scheduler; same thread, same
 * rules. */
#ifndef PLATEAU_SCHED_SEQ_CACHE_H
#define PLATEAU_SCHED_SEQ_CACHE_H

#include "sched/sched.h"

/* The longest prefix that the sequence may reuse: one token at least is computed, and all of them when their
 * logits are wanted. */
void seq_cache_find(const struct sched_opts *o, const struct sched_seq *seq, struct prefix_hit *ret);
/* Pages that the group's pool must have for the sequence to be read whole, beginning with the hit: those of
 * the hit that are referenced already cost it nothing. */
uint32_t seq_cache_wants(const struct sched_opts *o, const struct sched_seq *seq,
                         const struct prefix_hit *hit, uint32_t group);
/* Begins a sequence that holds nothing: takes the hit and a state. 0 or -ENOMEM, and then nothing has
 * moved. */
int seq_cache_begin(const struct sched_opts *o, struct sched_seq *seq, const struct prefix_hit *hit);
/* So many more pages of each group are about to be taken for a prompt: they are committed at once where that
 * is faster. */
void seq_cache_prepare(const struct sched_opts *o, uint32_t pages);
/* One more page of each group for the sequence's next tokens. 0, or as page_pool_take: then it has none. */
int seq_cache_extend(const struct sched_opts *o, struct sched_seq *seq);
/* sequence->done has moved: whole pages join the index, windows move, the state is kept at a page
 * boundary. */
void seq_cache_advance(const struct sched_opts *o, struct sched_seq *seq);
/* Gives back all pages and states; what is worth finding again stays in the index. */
void seq_cache_leave(const struct sched_opts *o, struct sched_seq *seq);

/* A free state, else that of the cheapest snapshot; NONE: there is none. */
uint32_t seq_cache_take_state(const struct sched_opts *o);
/* Pages that both begin with. */
uint32_t seq_cache_common_pages(const struct sched_seq *a, const struct sched_seq *b);
/* The next token index at which the sequence's chunk has to end. */
uint32_t seq_cache_next_cut(const struct sched_seq *seq);
/* Will `other`, which is reading its prompt, soon leave a longer prefix of `seq` than `hit`? */
bool seq_cache_worth_waiting(const struct sched_opts *o, const struct sched_seq *seq,
                             const struct prefix_hit *hit, const struct sched_seq *other);

#endif
