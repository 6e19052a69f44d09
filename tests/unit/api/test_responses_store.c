/* test_responses_store.c - stored responses: tenants, bounds, references, age. */
#include "test_ledger.h"

#include "api/responses_store.h"
#include "api/wire/responses_page.h"
#include "base/check.h"

#include <errno.h>
#include <string.h>

#define STORE_BYTES ((uint64_t)256 << 10)
#define TTL_NS      1000

struct scene {
    struct account *account;
    struct responses_store *store;
};

static struct scene begin(uint64_t bytes_max)
{
    struct scene s = {.account = test_account(1 << 20)};
    struct responses_store_opts opts = {s.account, bytes_max, TTL_NS};
    assert_int_equal(responses_store_create(&opts, &s.store), 0);
    return s;
}

static void end(struct scene *s)
{
    struct walk w = {.arg = NULL};
    responses_store_check(s->store, &w);
    responses_store_free(s->store);
    assert_int_equal(account_numbers(s->account).used, 0);
}

static struct responses_key key_of(uint64_t tenant, uint32_t id)
{
    struct responses_key key = {.tenant = tenant};
    memcpy(&key.id, &id, sizeof(id));
    return key;
}

static void check(struct scene *s)
{
    struct walk w = {.arg = NULL};
    responses_store_check(s->store, &w);
}

static bool put_of(struct scene *s, uint64_t tenant, uint32_t id, struct responses_items *before,
                   const char *items, size_t reply_len, uint64_t now_ns)
{
    static char reply[STORE_BYTES];
    struct responses_put p = {before, slice_of(items), {reply, reply_len}, 1};
    memset(reply, 'r', sizeof(reply));
    bool ok = responses_store_put(s->store, key_of(tenant, id), &p, now_ns);
    check(s);
    return ok;
}

static bool put(struct scene *s, uint32_t id, struct responses_items *before, const char *items,
                size_t reply_len, uint64_t now_ns)
{
    return put_of(s, 1, id, before, items, reply_len, now_ns);
}

static bool has(struct scene *s, uint64_t tenant, uint32_t id, uint64_t now_ns)
{
    struct responses_items *i = responses_store_take(s->store, key_of(tenant, id), now_ns);
    responses_items_unref(i);
    return i != NULL;
}

static void expect_items(const struct responses_items *i, bool output, const char *text)
{
    struct buf b;
    buf_init(&b, 4096, NULL);
    responses_items_write(i, output, &b);
    buf_putc(&b, 0);
    assert_string_equal(b.ptr, text);
    buf_done(&b);
}

TEST(a_response_belongs_to_its_tenant)
{
    struct scene s = begin(STORE_BYTES);
    struct buf b;
    buf_init(&b, 4096, NULL);
    assert_true(put(&s, 1, NULL, "ab", 3, 0));
    assert_false(put(&s, 1, NULL, "ab", 3, 0));
    assert_true(has(&s, 1, 1, 0));
    assert_false(has(&s, 2, 1, 0) || has(&s, 1, 2, 0));
    assert_false(responses_store_delete(s.store, key_of(2, 1)));
    assert_true(responses_store_reply(s.store, key_of(1, 1), 0, &b));
    assert_true(slice_eq(buf_slice(&b), SLICE("rrr")));
    assert_false(responses_store_reply(s.store, key_of(2, 1), 0, &b));
    assert_true(responses_store_delete(s.store, key_of(1, 1)));
    assert_false(has(&s, 1, 1, 0));
    buf_done(&b);
    end(&s);
}

TEST(a_conversation_outlives_its_earlier_responses)
{
    struct scene s = begin(STORE_BYTES);
    assert_true(put(&s, 1, NULL, "ab", 3, 0));
    struct responses_items *first = responses_store_take(s.store, key_of(1, 1), 0);
    assert_true(put(&s, 2, first, "cd", 3, 0));
    responses_items_unref(first);
    assert_true(responses_store_delete(s.store, key_of(1, 1)));
    struct responses_items *second = responses_store_take(s.store, key_of(1, 2), 0);
    expect_items(second, true, "ab" RESPONSES_BETWEEN "cd");
    expect_items(second, false, "ab" RESPONSES_BETWEEN "c");
    assert_true(responses_store_delete(s.store, key_of(1, 2)));
    expect_items(second, true, "ab" RESPONSES_BETWEEN "cd");
    assert_true(responses_store_numbers(s.store).bytes > 0);
    responses_items_unref(second);
    assert_int_equal(responses_store_numbers(s.store).bytes, 0);
    end(&s);
}

TEST(the_least_recently_used_leave_first)
{
    struct scene s = begin(STORE_BYTES);
    for (uint32_t id = 1; id <= 4; id++)
        assert_true(put(&s, id, NULL, "ab", STORE_BYTES / 5, id));
    assert_true(has(&s, 1, 1, 5));
    assert_true(put(&s, 5, NULL, "ab", STORE_BYTES / 5, 6));
    assert_true(has(&s, 1, 1, 7) && !has(&s, 1, 2, 7) && has(&s, 1, 3, 7));
    assert_int_equal(responses_store_numbers(s.store).evicted, 1);
    assert_false(put(&s, 6, NULL, "ab", STORE_BYTES / 3, 7));
    assert_int_equal(responses_store_numbers(s.store).entries, 4);
    end(&s);
}

TEST(the_tenant_with_the_most_bytes_loses_its_own)
{
    struct scene s = begin(STORE_BYTES);
    assert_true(put_of(&s, 2, 1, NULL, "ab", 100, 1));
    for (uint32_t id = 2; id < 40; id++)
        assert_true(put_of(&s, 1, id, NULL, "ab", STORE_BYTES / 5, id));
    assert_true(has(&s, 2, 1, 50));
    assert_true(has(&s, 1, 39, 50) && !has(&s, 1, 35, 50));
    /* The other way round: what the second tenant takes, the first one loses, up to an equal share. */
    for (uint32_t id = 40; id < 80; id++)
        assert_true(put_of(&s, 2, id, NULL, "ab", STORE_BYTES / 5, id));
    assert_true(has(&s, 1, 39, 90) && has(&s, 1, 38, 90));
    end(&s);
}

TEST(bytes_are_given_from_the_least_recently_used)
{
    struct scene s = begin(STORE_BYTES);
    for (uint32_t id = 1; id <= 4; id++)
        assert_true(put(&s, id, NULL, "ab", 10000, id));
    uint64_t before = responses_store_numbers(s.store).bytes;
    responses_store_give(s.store, 10001);
    assert_true(before - responses_store_numbers(s.store).bytes >= 10001);
    assert_int_equal(responses_store_numbers(s.store).entries, 3);
    assert_true(!has(&s, 1, 1, 5) && has(&s, 1, 2, 5));
    responses_store_give(s.store, UINT64_MAX);
    assert_int_equal(responses_store_numbers(s.store).bytes, 0);
    assert_int_equal(responses_store_numbers(s.store).evicted, 4);
    end(&s);
}

static bool ends_walk(void *arg)
{
    (void)arg;
    return false;
}

TEST(a_check_that_is_called_off_compares_no_sums)
{
    struct scene s = begin(STORE_BYTES);
    for (uint32_t id = 1; id <= 4; id++)
        assert_true(put(&s, id, NULL, "ab", 10, id));
    struct walk w = {.goes_on = ends_walk, .looked = WALK_ASKS - 3};
    responses_store_check(s.store, &w);
    assert_true(w.called_off);
    end(&s);
}

TEST(nothing_is_stored_while_references_hold_all_bytes)
{
    struct scene s = begin(4096);
    struct responses_items *held[64];
    uint32_t count = 0;
    for (uint32_t id = 1; id <= 64 && put(&s, id, NULL, "ab", 700, 0); id++)
        held[count++] = responses_store_take(s.store, key_of(1, id), 0);
    assert_true(count > 0 && responses_store_numbers(s.store).bytes <= 4096);
    while (count > 0)
        responses_items_unref(held[--count]);
    assert_true(put(&s, 100, NULL, "ab", 700, 0));
    end(&s);
}

TEST(what_no_request_used_for_long_expires)
{
    struct scene s = begin(STORE_BYTES);
    assert_true(put(&s, 1, NULL, "ab", 3, 0) && put(&s, 2, NULL, "ab", 3, 0));
    assert_true(has(&s, 1, 1, TTL_NS - 1));
    responses_store_expire(s.store, TTL_NS);
    assert_true(has(&s, 1, 1, TTL_NS) && !has(&s, 1, 2, TTL_NS));
    assert_int_equal(responses_store_numbers(s.store).expired, 1);
    end(&s);
}

TEST(a_conversation_has_an_end)
{
    struct scene s = begin(1 << 20);
    struct responses_items *before = NULL;
    uint32_t id = 0;
    while (put(&s, id, before, "a", 1, 0)) {
        responses_items_unref(before);
        before = responses_store_take(s.store, key_of(1, id++), 0);
    }
    assert_true(id <= RESPONSES_DEPTH_MAX);
    responses_items_unref(before);
    end(&s);
}

static int page_of(struct slice items, const struct responses_page *page, char text[static 256])
{
    struct buf out;
    buf_init(&out, 1 << 16, NULL);
    int r = responses_page_write(items, page, &out);
    snprintf(text, 256, "%.*s", SLICE_ARGS(buf_slice(&out)));
    buf_done(&out);
    return r;
}

TEST(a_page_ends_where_nobody_wants_it)
{
    static const char items[] =
        "{\"id\":\"a\"}" RESPONSES_BETWEEN "{\"id\":\"b\"}" RESPONSES_BETWEEN "{\"id\":\"c\"}";
    _Atomic bool left = false;
    const struct wanted wanted = {.cancelled = &left};
    struct responses_page page = {.limit = 1, .after = SLICE("a"), .wanted = &wanted};
    char text[256];
    assert_int_equal(page_of(SLICE(items), &page, text), 0);
    assert_string_equal(text,
                        "{\"object\":\"list\",\"data\":[{\"id\":\"b\"}],\"first_id\":\"b\",\"last_id\":\"b\","
                        "\"has_more\":true}");
    page.after = SLICE("d");
    assert_int_equal(page_of(SLICE(items), &page, text), -ENOENT);
    assert_string_equal(text, "");
    left = true;
    assert_int_equal(page_of(SLICE(items), &page, text), -ECANCELED);
    page.after = (struct slice){0};
    assert_int_equal(page_of(SLICE(items), &page, text), -ECANCELED);
}

TEST_MAIN()
