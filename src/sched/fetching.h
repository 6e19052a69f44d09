/* fetching.h - sequences that read their prefix from the SSD tier: which begin, what arrives, which give it
 * back.
 *
 * A fetching sequence has no place and blocks no other sequence; seq_fetch.h has one sequence's part of it.
 * At most SCHED_FETCHING_MAX sequences fetch at once, of each tenant its share. Internal to the scheduler,
 * with the rules of sched.h; engine thread only. */
#ifndef PLATEAU_SCHED_FETCHING_H
#define PLATEAU_SCHED_FETCHING_H

struct sched;

/* Takes in the arrivals since the last plan, requests further reads, and ends fetches that are over. */
void fetching_go_on(struct sched *s);
/* Begins fetches of the first sequences in the queue, whether there is a place for them yet or not. */
void fetching_begin(struct sched *s);

#endif
