/* timings.h - the totals of a request's choices, and how long the phases of its reply took. The log's line
 * about the request has them, and the reply if the client asks. Network thread. */
#ifndef PLATEAU_API_TIMINGS_H
#define PLATEAU_API_TIMINGS_H

struct exchange;
struct exchange_sums;
struct json_out;

/* Totals of the choices until now. */
struct exchange_sums timings_sum_up(const struct exchange *x);
/* Milliseconds from the request's arrival to its first token; 0: it has none yet. */
double timings_first_token_ms(const struct exchange *x);

/* Puts timings, a member of `usage`. Nothing where the request has no include_timings. */
void timings_write(const struct exchange *x, struct json_out *j);
/* Puts timings, a member of a reply or a chunk, with llama.cpp's names. Nothing where the request has no
 * timings_per_token. */
void timings_write_llama(const struct exchange *x, struct json_out *j);

#endif
