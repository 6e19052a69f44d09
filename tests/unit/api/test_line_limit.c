/* Lines of refused requests: each client has its share, all have a bound, and what is left out is counted. */
#include "test.h"
#include "api/access/line_limit.h"

#include <stdio.h>
#include <string.h>

struct heard {
    uint32_t count, untold, others;
};

static void hear(void *arg, const char *name, uint32_t untold)
{
    struct heard *h = arg;
    h->count++;
    if (name)
        h->untold += untold;
    else
        h->others += untold;
}

TEST(a_client_has_its_lines_in_each_period)
{
    struct line_limit l = {0};
    for (uint32_t period = 0; period < 3; period++) {
        struct heard h = {0};
        for (uint32_t i = 0; i < LINE_LIMIT_OWN; i++)
            assert_true(line_limit_take(&l, 7, "seven"));
        for (uint32_t i = 0; i < 1000; i++)
            assert_false(line_limit_take(&l, 7, "seven"));
        bool others;
        assert_int_equal(line_limit_untold(&l, 7, &others), 1000);
        assert_false(others);
        assert_true(line_limit_take(&l, 8, "eight"));
        line_limit_end(&l, hear, &h);
        assert_int_equal(h.count, 1);
        assert_int_equal(h.untold, 1000);
    }
}

TEST(many_clients_have_no_more_lines_than_all_may_have)
{
    struct line_limit l = {0};
    struct heard h = {0};
    uint32_t told = 0;
    for (uint64_t client = 1; client <= 10000; client++)
        told += line_limit_take(&l, client, "one of many");
    assert_int_equal(told, LINE_LIMIT_CLIENTS);
    for (uint64_t client = 1; client <= LINE_LIMIT_CLIENTS; client++)
        told += line_limit_take(&l, client, "one of many");
    assert_int_equal(told, LINE_LIMIT_ALL);
    line_limit_end(&l, hear, &h);
    assert_int_equal(h.others, 10000 - LINE_LIMIT_CLIENTS);
    assert_int_equal(h.untold, 2 * LINE_LIMIT_CLIENTS - LINE_LIMIT_ALL);
    assert_true(h.count <= LINE_LIMIT_CLIENTS + 1);
    assert_true(line_limit_take(&l, 10001, "a new period"));
}

TEST(a_quiet_period_tells_nothing)
{
    struct line_limit l = {0};
    struct heard h = {0};
    assert_true(line_limit_take(&l, 1, "one"));
    line_limit_end(&l, hear, &h);
    line_limit_end(&l, hear, &h);
    assert_int_equal(h.count, 0);
}

TEST_MAIN()
