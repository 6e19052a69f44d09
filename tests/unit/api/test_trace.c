/* The last requests: a bounded number of records, fair to tenants, read in the order of their ends. */
#include "test_ledger.h"

#include "api/report/trace.h"
#include "base/clock.h"
#include "gen/reject.h"

#include <string.h>

static uint64_t now_ns;

static struct trace *make_trace(void)
{
    struct trace *t;
    assert_int_equal(trace_create(test_account(trace_bytes()), &t), 0);
    now_ns = clock_now_ns();
    return t;
}

static void add(struct trace *t, uint64_t tenant)
{
    struct trace_record r = {.tenant = tenant, .model = 0, .end = "stop"};
    now_ns += NS_PER_MS;
    trace_add(t, &r, now_ns);
}

/* How many records the tenant has; 0: all. The numbers rise. */
static uint32_t count_of(const struct trace *t, uint64_t tenant)
{
    const uint64_t *of = tenant ? &tenant : NULL;
    uint32_t count = 0;
    uint64_t before = 0;
    for (const struct trace_record *r = trace_next(t, 0, of); r; r = trace_next(t, before, of)) {
        assert_true(r->number > before);
        assert_true(!tenant || r->tenant == tenant);
        before = r->number;
        count++;
    }
    assert_int_equal(trace_last(t, of), before);
    return count;
}

TEST(the_newest_records_stay)
{
    struct trace *t = make_trace();
    assert_null(trace_next(t, 0, NULL));
    for (uint32_t i = 0; i < 3 * TRACE_RECORDS; i++)
        add(t, 1);
    assert_int_equal(count_of(t, 0), TRACE_RECORDS);
    uint64_t last = trace_last(t, NULL), oldest = trace_next(t, 0, NULL)->number;
    assert_true(last - oldest < TRACE_RECORDS * 1000);
    add(t, 1);
    assert_int_equal(trace_next(t, last, NULL)->number, trace_last(t, NULL));
    assert_true(trace_next(t, 0, NULL)->number > oldest);
    trace_free(t);
}

TEST(a_tenant_pushes_out_its_own_records)
{
    struct trace *t = make_trace();
    for (uint32_t i = 0; i < 5; i++)
        add(t, 1);
    for (uint32_t i = 0; i < 10 * TRACE_RECORDS; i++)
        add(t, 2);
    assert_int_equal(count_of(t, 1), 5);
    assert_int_equal(count_of(t, 2), TRACE_RECORDS - 5);
    for (uint32_t i = 0; i < 10 * TRACE_RECORDS; i++)
        add(t, 3);
    assert_int_equal(count_of(t, 1), 5);
    assert_true(count_of(t, 2) >= (TRACE_RECORDS - 5) / 2);
    assert_int_equal(count_of(t, 0), TRACE_RECORDS);
    trace_free(t);
}

TEST(two_ends_in_one_moment_have_two_numbers)
{
    struct trace *t = make_trace();
    struct trace_record r = {.tenant = 1};
    for (uint32_t i = 0; i < 10; i++)
        trace_add(t, &r, now_ns);
    assert_int_equal(count_of(t, 1), 10);
    trace_free(t);
}

TEST(refusals_of_one_client_are_bounded)
{
    struct trace *t = make_trace();
    struct trace_record r = {.tenant = 1, .model = -1, .refusal = {.status = 400, .code = "invalid_value"}};
    strcpy(r.who.key, "-");
    for (uint32_t i = 0; i < 1000; i++)
        trace_refused(t, &r, NULL, now_ns);
    assert_int_equal(count_of(t, 1), 10 + 1);
    r.tenant = 2;
    trace_refused(t, &r, NULL, now_ns);
    assert_int_equal(count_of(t, 2), 1);
    trace_tick(t, now_ns += 61 * NS_PER_S);
    trace_tick(t, now_ns += 61 * NS_PER_S);
    r.tenant = 1;
    trace_refused(t, &r, NULL, now_ns);
    assert_int_equal(count_of(t, 1), 10 + 1 + 1);
    trace_free(t);
}

/* The tenant's newest record. */
static const struct trace_record *newest(const struct trace *t, uint64_t tenant)
{
    const struct trace_record *r = trace_next(t, trace_last(t, &tenant) - 1, &tenant);
    assert_non_null(r);
    return r;
}

TEST(further_refusals_are_counted_in_a_record_of_their_minute)
{
    struct trace *t = make_trace();
    struct trace_record r = {.tenant = 1, .model = -1, .refusal = {.status = 400, .code = "invalid_value"}};
    strcpy(r.who.key, "-");
    for (uint32_t i = 0; i < 12; i++)
        trace_refused(t, &r, NULL, now_ns);
    assert_int_equal(newest(t, 1)->untold, 2);
    uint64_t first = newest(t, 1)->first, before = newest(t, 1)->number;
    r.refusal.status = 404;
    add(t, 1);
    trace_refused(t, &r, NULL, now_ns);
    assert_int_equal(newest(t, 1)->untold, 3);
    assert_int_equal(newest(t, 1)->refusal.status, 404);
    assert_int_equal(newest(t, 1)->first, first);
    assert_true(newest(t, 1)->number > before);
    assert_int_equal(count_of(t, 1), 10 + 1 + 1);
    trace_tick(t, now_ns += 61 * NS_PER_S);
    for (uint32_t i = 0; i < 11; i++)
        trace_refused(t, &r, NULL, now_ns);
    assert_int_equal(newest(t, 1)->untold, 1);
    assert_true(newest(t, 1)->first > first);
    trace_free(t);
}

TEST(many_clients_without_a_place_share_a_record)
{
    struct trace *t = make_trace();
    struct trace_record r = {.model = -1, .refusal = {.status = 400}};
    strcpy(r.who.key, "-");
    for (r.tenant = 1; r.tenant <= 100; r.tenant++)
        trace_refused(t, &r, NULL, now_ns);
    assert_int_equal(count_of(t, 0), 64 + 1);
    const struct trace_record *last = trace_next(t, trace_last(t, NULL) - 1, NULL);
    assert_int_equal(last->untold, 36);
    assert_string_equal(last->who.client, "others");
    assert_int_equal(count_of(t, 100), 0);
    trace_free(t);
}

TEST(a_refusal_quotes_no_text_of_a_body)
{
    struct trace_refusal ret;
    struct reject why = {0};
    reject_set(
        &why, REJECT_INVALID_JSON, NULL,
        "The body is not valid JSON: premature end of input near '\"a secret (line 7' (line 1, column 64).");
    trace_refusal_of(&ret, 400, &why);
    assert_string_equal(ret.message,
                        "The body is not valid JSON: premature end of input (line 1, column 64).");
    assert_string_equal(ret.code, "invalid_json");
    why = (struct reject){0};
    reject_value(&why, "temperature", "temperature must be a number from 0 to 2.");
    trace_refusal_of(&ret, 400, &why);
    assert_string_equal(ret.param, "temperature");
    assert_string_equal(ret.message, why.message);
}

TEST(phases_add_up)
{
    struct trace_clock c = {0};
    trace_turn_to(&c, TRACE_RECEIVING, 100);
    trace_turn_to(&c, TRACE_PREPARING, 110);
    trace_turn_to(&c, TRACE_LOADING, 130);
    trace_turn_to(&c, TRACE_PREPARING, 170);
    trace_turn_to(&c, TRACE_SENDING, 171);
    assert_int_equal(c.ns[TRACE_RECEIVING], 10);
    assert_int_equal(c.ns[TRACE_PREPARING], 21);
    assert_int_equal(c.ns[TRACE_LOADING], 40);
    assert_int_equal(c.ns[TRACE_SENDING], 0);
}

TEST_MAIN()
