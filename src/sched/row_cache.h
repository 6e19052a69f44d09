/* row_cache.h - what a row takes from the prefix index, and what it leaves there.
 *
 * A row's whole pages join the index as soon as they are computed, so that others find them while it runs.
 * With recurrent layers the row has two states: a step reads one and writes the other, so the state at the
 * last page boundary is never overwritten by the steps behind it, whether they succeed or not. At a cut, and
 * when the row leaves, that state becomes a snapshot. States that are missing cost reuse, never the row: it
 * then goes on in the one that it has. Pages that a window leaves behind lose the row's reference; those in
 * the index stay there as cache. Parts of the scheduler; same thread, same rules. */
#ifndef PLATEAU_SCHED_ROW_CACHE_H
#define PLATEAU_SCHED_ROW_CACHE_H

#include "sched/sched.h"

/* The longest prefix that the row may reuse: one token at least is computed, and all of them when their
 * logits are wanted. */
void row_cache_find(const struct sched_opts *o, const struct sched_row *row, struct prefix_hit *ret);
/* Pages that the group's pool must have for the row to be read whole, beginning with the hit: those of the
 * hit that are referenced already cost it nothing. */
uint32_t row_cache_wants(const struct sched_opts *o, const struct sched_row *row,
                         const struct prefix_hit *hit, uint32_t group);
/* Begins a row that holds nothing: takes the hit and a state. 0 or -ENOMEM, and then nothing has moved. */
int row_cache_begin(const struct sched_opts *o, struct sched_row *row, const struct prefix_hit *hit);
/* So many more pages of each group are about to be taken for a prompt: they are committed at once where that
 * is faster. */
void row_cache_prepare(const struct sched_opts *o, uint32_t pages);
/* One more page of each group for the row's next tokens. 0, or as page_pool_take: then it has none. */
int row_cache_extend(const struct sched_opts *o, struct sched_row *row);
/* row->done has moved: whole pages join the index, windows move, the state is kept at a page boundary. */
void row_cache_advance(const struct sched_opts *o, struct sched_row *row);
/* Gives back all pages and states; what is worth finding again stays in the index. */
void row_cache_leave(const struct sched_opts *o, struct sched_row *row);

/* A free state, else that of the cheapest snapshot; NONE: there is none. */
uint32_t row_cache_take_state(const struct sched_opts *o);
/* Pages that both begin with. */
uint32_t row_cache_common_pages(const struct sched_row *a, const struct sched_row *b);
/* The next token index at which the row's chunk has to end. */
uint32_t row_cache_next_cut(const struct sched_row *row);
/* Will `other`, which is reading its prompt, soon leave a longer prefix of `row` than `hit`? */
bool row_cache_worth_waiting(const struct sched_opts *o, const struct sched_row *row,
                             const struct prefix_hit *hit, const struct sched_row *other);

#endif
