/* The table of accounts: one name each, a parent above every child, and the accounts that it opens. */
#include "test.h"
#include "test_ledger.h"

#include "memory/accounts.h"

TEST(every_account_has_a_name_of_its_own)
{
    for (int i = 0; i < ACCOUNT_ID_COUNT; i++) {
        enum account_id id = (enum account_id)i;
        assert_true((accounts_row(id)->name[0] == 0) == (id == ACCOUNT_MODEL));
        assert_int_equal(accounts_of(accounts_row(id)->name), id);
    }
    assert_int_equal(accounts_of("Qwen3-4B"), ACCOUNT_MODEL);
    assert_int_equal(accounts_of(""), ACCOUNT_MODEL);
}

TEST(a_parent_stands_above_its_children)
{
    for (int i = 1; i < ACCOUNT_ID_COUNT; i++)
        assert_true(accounts_row((enum account_id)i)->parent < (enum account_id)i);
}

TEST(an_account_is_found_by_what_it_is)
{
    struct account *model = test_account(ACCOUNT_NO_LIMIT), *pools, *kv;
    assert_int_equal(accounts_open(model, ACCOUNT_POOLS, 100, &pools), 0);
    assert_int_equal(accounts_open(pools, ACCOUNT_KV, ACCOUNT_NO_LIMIT, &kv), 0);
    assert_ptr_equal(accounts_find(model, ACCOUNT_KV), kv);
    assert_null(accounts_find(model, ACCOUNT_STATE));
    struct account_numbers n = account_numbers(pools);
    assert_string_equal(n.name, "pools");
    assert_int_equal(n.class, ACCOUNT_ANON);
    assert_int_equal(n.limit, 100);
    account_close(kv);
    account_close(pools);
}

TEST(a_pool_outside_the_pools_stops_the_program)
{
    struct account *model = test_account(ACCOUNT_NO_LIMIT), *kv;
    assert_stops_saying(accounts_open(model, ACCOUNT_KV, ACCOUNT_NO_LIMIT, &kv), "ACCOUNT_POOLS");
}

TEST_MAIN()
