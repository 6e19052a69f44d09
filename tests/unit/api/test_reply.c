/* The stages of a reply, and the state that a dialect keeps for each choice. */
#include "test_ledger.h"

#include "api/exchange.h"
#include "api/wire/wire.h"
#include "gen/choice.h"

#include <stdlib.h>

static struct exchange *make_exchange(const struct wire *wire)
{
    struct exchange *x = calloc(1, sizeof(*x));
    assert_non_null(x);
    x->wire = wire;
    x->request.stream = true;
    request_memory_init(&x->gen.memory, test_account(1 << 20), 1 << 20);
    struct charge charge = request_memory_charge(&x->gen.memory);
    buf_init(&x->out, 1 << 16, &charge);
    return x;
}

static void done(struct exchange *x)
{
    buf_done(&x->out);
    request_memory_done(&x->gen.memory);
    free(x);
}

TEST(a_stage_leads_to_later_ones_only)
{
    static const bool legal[4][4] = {[REPLY_PENDING] = {[REPLY_OPEN] = true, [REPLY_GIVEN] = true},
                                     [REPLY_OPEN] = {[REPLY_ENDING] = true, [REPLY_GIVEN] = true},
                                     [REPLY_ENDING] = {[REPLY_GIVEN] = true}};
    struct exchange *x = make_exchange(&wire_chat);
    for (int from = REPLY_PENDING; from <= REPLY_GIVEN; from++)
        for (int to = REPLY_PENDING; to <= REPLY_GIVEN; to++) {
            x->reply_stage = (enum reply_stage)from;
            if (!legal[from][to]) {
                assert_stops(reply_turn_to(x, (enum reply_stage)to));
                continue;
            }
            reply_turn_to(x, (enum reply_stage)to);
            assert_int_equal(x->reply_stage, to);
        }
    done(x);
}

static unsigned begins, flushes;

static void begin(struct exchange *x)
{
    begins++;
    buf_puts(&x->out, "begin ");
}

static void flush(struct reply *r)
{
    flushes++;
    buf_put_slice(&r->exchange->out, buf_slice(r->reasoning.len ? &r->reasoning : &r->content));
    buf_putc(&r->exchange->out, ' ');
}

static void part(void *arg, const struct reply_part *p)
{
    struct reply *r = arg;
    bool reasons = p->kind == PART_REASONING;
    reply_turn(r, reasons ? DELTA_REASONING : DELTA_CONTENT, false);
    buf_put_slice(reasons ? &r->reasoning : &r->content, p->text);
}

TEST(a_stream_opens_once_and_keeps_the_order_of_its_kinds)
{
    static const struct wire wire = {.part = part, .begin = begin, .flush = flush};
    struct exchange *x = make_exchange(&wire);
    struct choice c = {0};
    struct reply r;
    reply_init(&r, x, &c, NULL);
    begins = flushes = 0;
    reply_flush(&r);
    assert_int_equal(x->reply_stage, REPLY_PENDING);
    static const enum reply_part_kind kinds[] = {PART_REASONING, PART_REASONING, PART_TEXT, PART_REASONING};
    static const char *const texts[] = {"a", "b", "c", "d"};
    for (size_t i = 0; i < COUNT_OF(kinds); i++)
        c.sink(c.sink_arg, &(struct reply_part){.kind = kinds[i], .text = slice_of(texts[i])});
    reply_flush(&r);
    reply_flush(&r);
    assert_int_equal(x->reply_stage, REPLY_OPEN);
    assert_int_equal(begins, 1);
    assert_int_equal(flushes, 3);
    assert_true(slice_eq(buf_slice(&x->out), SLICE("begin ab c d ")));
    reply_done(&r);
    done(x);
}

TEST_MAIN()
