/* test_ledger.h - a ledger for each test, which must be empty again when the test is over.
 *
 * test_account(limit) opens an account below the test's root. After the test every account opened this way is
 * closed; both account_close() and ledger_free() stop the program if a byte is still reserved. */
#ifndef PLATEAU_TESTS_TEST_LEDGER_H
#define PLATEAU_TESTS_TEST_LEDGER_H

#include "test.h"

#include "memory/domain.h"
#include "memory/ledger.h"

#define TEST_ACCOUNTS_MAX 128

static struct ledger *test_ledger_now;
static struct account *test_accounts[TEST_ACCOUNTS_MAX];
static size_t test_account_count;
/* Tests of engines: the memory of their device, whose root test accounts open below. NULL: the machine's. */
static const struct domain *(*test_account_domain)(void);
static struct account *test_device_root;

static inline void test_ledger_after(bool passed)
{
    if (!passed) {
        /* Show the failure itself: remaining bytes are its consequence. */
        test_account_count = 0;
        test_ledger_now = NULL;
        test_device_root = NULL;
        return;
    }
    while (test_account_count > 0)
        account_close(test_accounts[--test_account_count]);
    account_close(test_device_root);
    test_device_root = NULL;
    if (test_ledger_now)
        ledger_check(test_ledger_now);
    ledger_free(test_ledger_now);
    test_ledger_now = NULL;
}

/* The ledger of the running test, without a limit of its own. */
static inline struct ledger *test_ledger(void)
{
    test_state.after = test_ledger_after;
    if (!test_ledger_now)
        assert_int_equal(ledger_create(ACCOUNT_NO_LIMIT, &test_ledger_now), 0);
    return test_ledger_now;
}

static inline struct account *test_root(void)
{
    const struct domain *d = test_account_domain ? test_account_domain() : NULL;
    if (!d || d == domain_machine())
        return ledger_root(test_ledger());
    if (!test_device_root)
        assert_int_equal(ledger_open_root(test_ledger(), d, ACCOUNT_NO_LIMIT, &test_device_root), 0);
    return test_device_root;
}

static inline struct account *test_account(uint64_t limit_bytes)
{
    struct account *a = NULL;
    struct account *root = test_root();
    assert_true(test_account_count < TEST_ACCOUNTS_MAX);
    assert_int_equal(account_open(root, "test", ACCOUNT_ANON, limit_bytes, &a), 0);
    test_accounts[test_account_count++] = a;
    return a;
}

#endif
