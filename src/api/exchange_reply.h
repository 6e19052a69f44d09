/* exchange_reply.h - the reply of an exchange: whole, in pieces, or an error. For exchange.c; network thread.
 *
 * Each function that ends the reply also frees the work, and leaves the exchange in the phase `sending`. */
#ifndef PLATEAU_API_EXCHANGE_REPLY_H
#define PLATEAU_API_EXCHANGE_REPLY_H

struct exchange;
struct reject;

/* Frees everything that the work needed; the exchange itself stays until its connection ends. Twice is
 * fine. */
void exchange_reply_drop(struct exchange *x);
/* Ends it: x->reply is the body. */
void exchange_reply_send(struct exchange *x);
/* Ends it with an error; nothing has been sent. */
void exchange_reply_refuse(struct exchange *x, const struct reject *why);
/* Ends a stream with its refusal, whose events x->reply has. */
void exchange_reply_refuse_in_stream(struct exchange *x, const struct reject *why);
/* Ends it with an error, in the way that is still open. */
void exchange_reply_fail(struct exchange *x, const struct reject *why);
/* While a prep thread owns the exchange: the client gets its error, and the work is freed when the thread
 * returns it. */
void exchange_reply_cancel(struct exchange *x, const struct reject *why);
/* Running: takes tokens and writes what the connection takes. */
void exchange_reply_pump(struct exchange *x);
/* A stream that has been silent. */
void exchange_reply_ping(struct exchange *x);

/* Where it counts: its model's metrics, and its tenant's share of them. Before its model is known: those of
 * the first one. */
struct metrics *exchange_metrics(struct exchange *x);
struct metrics_counts *exchange_metrics_own(struct exchange *x);

/* For the model, and for the tenant. */
#define EXCHANGE_COUNT(x, field)                                                                             \
    do {                                                                                                     \
        exchange_metrics(x)->counts.field++;                                                                 \
        exchange_metrics_own(x)->field++;                                                                    \
    } while (0)

#endif
