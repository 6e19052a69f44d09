/* Counters of tenants: each finds its own, and with too many the one that has rested longest goes. */
#include "test.h"
#include "api/access/tenants.h"
#include "api/report/metrics.h"

TEST(each_tenant_has_counters_of_its_own_for_each_model)
{
    struct tenants *t;
    assert_int_equal(tenants_create(&t), 0);
    assert_null(tenants_find_counts(t, 1, 0));
    for (uint64_t tenant = 1; tenant <= 3; tenant++)
        for (uint32_t model = 0; model < 3; model++)
            tenants_counts(t, tenant, model)->prompt_tokens += 10 * tenant + model;
    tenants_counts(t, 2, 1)->prompt_tokens += 100;
    for (uint64_t tenant = 1; tenant <= 3; tenant++)
        for (uint32_t model = 0; model < 3; model++)
            assert_int_equal(tenants_find_counts(t, tenant, model)->prompt_tokens,
                             10 * tenant + model + (tenant == 2 && model == 1 ? 100 : 0));
    assert_null(tenants_find_counts(t, 4, 0));
    assert_null(tenants_find_counts(t, 1, 3));
    tenants_free(t);
}

TEST(the_one_that_has_rested_longest_goes)
{
    struct tenants *t;
    assert_int_equal(tenants_create(&t), 0);
    for (uint64_t tenant = 1; tenant <= TENANTS_MAX; tenant++)
        tenants_counts(t, tenant, 0)->requests_rejected++;
    tenants_counts(t, 1, 0)->requests_rejected++;
    assert_int_equal(tenants_counts(t, TENANTS_MAX + 1, 0)->requests_rejected, 0);
    assert_null(tenants_find_counts(t, 2, 0));
    assert_int_equal(tenants_find_counts(t, 1, 0)->requests_rejected, 2);
    assert_int_equal(tenants_find_counts(t, 3, 0)->requests_rejected, 1);
    tenants_free(t);
}

TEST_MAIN()
