/* test_conversations.c - heads of conversations: which one a turn continues, tenants, bounds. */
#include "test_ledger.h"

#include "api/conversations.h"
#include "api/conversations_file.h"
#include "api/request/json_digest.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/rng.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MESSAGES_MAX 40

struct scene {
    struct account *account;
    struct conversations *store;
    struct buf texts;
};

static struct scene begin(uint64_t bytes_max)
{
    struct scene s = {.account = test_account(4 << 20)};
    struct conversations_opts opts = {s.account, bytes_max};
    assert_int_equal(conversations_create(&opts, &s.store), 0);
    buf_init(&s.texts, 1 << 20, NULL);
    return s;
}

static void check(const struct scene *s)
{
    struct walk w = {.arg = NULL};
    conversations_check(s->store, &w);
    assert_int_equal(account_numbers(s->account).used, conversations_numbers(s->store).bytes);
}

static void end(struct scene *s)
{
    check(s);
    buf_done(&s->texts);
    conversations_free(s->store);
    assert_int_equal(account_numbers(s->account).used, 0);
}

/* A turn of `count` messages, the last of which are those of branch `branch`, which begins at `from`. */
static struct conversation_turn turn_of(uint64_t *chain, uint64_t tenant, uint32_t count, uint32_t from,
                                        uint64_t branch, uint64_t tools)
{
    chain[0] = 0;
    for (uint32_t i = 0; i < count; i++)
        chain[i + 1] = rng_at(chain[i], i >= from ? branch : 0);
    return (struct conversation_turn){.key = tenant * 1000 + chain[1],
                                      .tenant = tenant,
                                      .tools = tools,
                                      .chain = chain,
                                      .count = count,
                                      .first = count == 1};
}

static struct conversation_past past_of(const char *head, uint64_t tools)
{
    return (struct conversation_past){.tools = tools, .head = slice_of(head)};
}

static void add(struct conversation_past *p, uint32_t message, uint64_t tools, const char *text)
{
    p->changes[p->change_count++] = (struct conversation_change){message, tools, slice_of(text)};
}

TEST(a_turn_finds_its_head_and_the_changes_before_it)
{
    uint64_t chain[MESSAGES_MAX + 1];
    struct scene s = begin(1 << 20);
    struct conversation_past past = past_of("head", 1), got;
    struct conversation_turn turn = turn_of(chain, 1, 1, 0, 0, 1);
    assert_false(conversations_find(s.store, &turn, &s.texts, &got));
    conversations_put(s.store, &turn, &past, 1);
    turn = turn_of(chain, 1, 3, 0, 0, 2);
    assert_true(conversations_find(s.store, &turn, &s.texts, &got));
    assert_true(slice_eq(got.head, SLICE("head")) && got.change_count == 0 && got.tools == 1);
    add(&past, 2, 2, "first change");
    conversations_put(s.store, &turn, &past, 2);
    turn = turn_of(chain, 1, 7, 0, 0, 3);
    add(&past, 6, 3, "second");
    conversations_put(s.store, &turn, &past, 3);
    assert_int_equal(conversations_numbers(s.store).entries, 1);
    assert_true(conversations_find(s.store, &turn, &s.texts, &got));
    assert_true(slice_eq(got.head, SLICE("head")) && got.change_count == 2);
    assert_true(slice_eq(got.changes[0].text, SLICE("first change")) && got.changes[0].message == 2);
    assert_true(slice_eq(got.changes[1].text, SLICE("second")) && got.changes[1].tools == 3);
    /* Another message stands where the second change was. */
    turn = turn_of(chain, 1, 7, 5, 9, 2);
    assert_true(conversations_find(s.store, &turn, &s.texts, &got));
    assert_int_equal(got.change_count, 1);
    conversations_put(s.store, &turn, &got, 4);
    assert_int_equal(conversations_numbers(s.store).entries, 2);
    /* Each branch goes on from its own last turn. */
    turn = turn_of(chain, 1, 9, 0, 0, 3);
    assert_true(conversations_find(s.store, &turn, &s.texts, &got));
    assert_int_equal(got.change_count, 2);
    turn = turn_of(chain, 1, 9, 5, 9, 3);
    assert_true(conversations_find(s.store, &turn, &s.texts, &got));
    assert_int_equal(got.change_count, 1);
    end(&s);
}

TEST(first_turns_with_other_tools_are_conversations_of_their_own)
{
    uint64_t chain[MESSAGES_MAX + 1];
    struct scene s = begin(1 << 20);
    struct conversation_past a = past_of("a", 1), b = past_of("b", 2), got;
    struct conversation_turn turn = turn_of(chain, 1, 1, 0, 0, 1);
    conversations_put(s.store, &turn, &a, 1);
    turn.tools = 2;
    assert_false(conversations_find(s.store, &turn, &s.texts, &got));
    conversations_put(s.store, &turn, &b, 2);
    for (uint64_t tools = 1; tools <= 2; tools++) {
        turn = turn_of(chain, 1, 3, 0, 0, tools);
        assert_true(conversations_find(s.store, &turn, &s.texts, &got));
        assert_true(slice_eq(got.head, tools == 1 ? a.head : b.head));
    }
    turn = turn_of(chain, 2, 3, 0, 0, 1);
    assert_false(conversations_find(s.store, &turn, &s.texts, &got));
    end(&s);
}

TEST(a_tenant_finds_no_conversation_of_another_under_the_same_key)
{
    struct scene s = begin(1 << 20);
    uint64_t chain[MESSAGES_MAX + 1];
    struct conversation_past past = past_of("tools of one", 5), found;
    struct conversation_turn turn = turn_of(chain, 1, 3, 3, 0, 5);
    conversations_put(s.store, &turn, &past, NS_PER_S);
    assert_true(conversations_find(s.store, &turn, &s.texts, &found));
    turn.tenant = 2;
    assert_false(conversations_find(s.store, &turn, &s.texts, &found));
    past = past_of("tools of two", 5);
    conversations_put(s.store, &turn, &past, NS_PER_S);
    assert_int_equal(conversations_numbers(s.store).entries, 2);
    end(&s);
}

TEST(a_tenant_with_much_evicts_its_own_conversations)
{
    uint64_t chain[MESSAGES_MAX + 1];
    char *head = malloc(8001);
    struct scene s = begin(256 << 10);
    struct conversation_turn turn = turn_of(chain, 1, 1, 0, 0, 1);
    struct conversation_past past = past_of("small", 1), got;
    conversations_put(s.store, &turn, &past, 1);
    for (uint32_t i = 0; i < 200; i++) {
        memset(head, 'a' + (int)(i % 26), 8000);
        snprintf(head + 7990, 11, "%010u", i);
        turn = turn_of(chain, 2, 1, 0, i, 1);
        past = past_of(head, 1);
        conversations_put(s.store, &turn, &past, i);
        check(&s);
    }
    struct conversations_numbers n = conversations_numbers(s.store);
    assert_true(n.evicted > 100 && n.refused == 0 && n.bytes <= n.bytes_max);
    turn = turn_of(chain, 1, 1, 0, 0, 1);
    assert_true(conversations_find(s.store, &turn, &s.texts, &got) && slice_eq(got.head, SLICE("small")));
    /* One that is too large leaves all others. */
    free(head);
    head = calloc(1, 100001);
    memset(head, 'x', 100000);
    turn = turn_of(chain, 3, 1, 0, 0, 1);
    past = past_of(head, 1);
    conversations_put(s.store, &turn, &past, 1000);
    assert_int_equal(conversations_numbers(s.store).refused, 1);
    assert_int_equal(conversations_numbers(s.store).evicted, n.evicted);
    free(head);
    end(&s);
}

PROPERTY(random_turns_keep_every_invariant, seed)
{
    uint64_t chain[MESSAGES_MAX + 1], at = 0;
    char text[3000];
    struct scene s = begin(128 << 10);
    for (uint32_t i = 0; i < 300; i++) {
        uint32_t count = 1 + (uint32_t)(rng_at(seed, at++) % MESSAGES_MAX);
        uint64_t tenant = rng_at(seed, at++) % 4, branch = rng_at(seed, at++) % 3,
                 tools = rng_at(seed, at++) % 3;
        struct conversation_turn turn = turn_of(chain, tenant, count, count / 2, branch, tools);
        struct conversation_past past;
        size_t len = 1 + rng_at(seed, at++) % (sizeof(text) - 1);
        memset(text, 'a' + (int)(rng_at(seed, at++) % 5), len);
        text[len - 1] = 0;
        if (!conversations_find(s.store, &turn, &s.texts, &past))
            past = past_of(text, turn.tools);
        else if (past.change_count < CONVERSATIONS_CHANGES_MAX && rng_at(seed, at++) % 2)
            add(&past, count - 1, turn.tools, text);
        conversations_put(s.store, &turn, &past, i * NS_PER_S);
        check(&s);
    }
    end(&s);
}

TEST(bytes_are_given_from_the_least_recently_used)
{
    uint64_t chain[MESSAGES_MAX + 1];
    struct scene s = begin(1 << 20);
    struct conversation_past past = past_of("tools", 1), got;
    uint64_t empty = conversations_numbers(s.store).bytes;
    for (uint32_t i = 0; i < 8; i++) {
        struct conversation_turn turn = turn_of(chain, 1, 1, 0, i, 1);
        turn.key = i;
        conversations_put(s.store, &turn, &past, i + 1);
    }
    /* One text is all that they hold: it goes with the last of them. */
    conversations_give(s.store, 0);
    assert_int_equal(conversations_numbers(s.store).entries, 8);
    conversations_give(s.store, UINT64_MAX);
    assert_int_equal(conversations_numbers(s.store).entries, 0);
    assert_int_equal(conversations_numbers(s.store).bytes, empty);
    char head[2][4096];
    for (uint32_t i = 0; i < 2; i++) {
        memset(head[i], 'a' + (int)i, sizeof(head[i]));
        past.head = (struct slice){head[i], sizeof(head[i])};
        struct conversation_turn turn = turn_of(chain, 1, 1, 0, i, 1);
        turn.key = i;
        conversations_put(s.store, &turn, &past, 10 + i);
    }
    conversations_give(s.store, 1);
    for (uint64_t i = 0; i < 2; i++) {
        struct conversation_turn turn = turn_of(chain, 1, 1, 0, i, 1);
        turn.key = i;
        assert_int_equal(conversations_find(s.store, &turn, &s.texts, &got), i == 1);
    }
    end(&s);
}

/* ---- the file ---- */

static void put_three(struct scene *s, uint64_t *chain)
{
    struct conversation_past past = past_of("the tools of all", 1);
    for (uint64_t tenant = 1; tenant <= 3; tenant++) {
        struct conversation_turn turn = turn_of(chain, tenant, 1, 0, 0, 1);
        conversations_put(s->store, &turn, &past, tenant);
    }
    struct conversation_turn turn = turn_of(chain, 2, 5, 0, 0, 7);
    add(&past, 4, 7, "a change");
    conversations_put(s->store, &turn, &past, 9);
}

static char path[128];

static void save(uint64_t *chain)
{
    struct err e = {0};
    struct scene s = begin(1 << 20);
    snprintf(path, sizeof(path), "/tmp/test_conversations.%d", getpid());
    put_three(&s, chain);
    assert_int_equal(conversations_save(s.store, path, &e), 0);
    end(&s);
}

TEST(a_file_has_the_conversations_and_the_seed)
{
    uint64_t chain[MESSAGES_MAX + 1], seed = json_digest_seed();
    struct conversation_past got;
    struct stat st;
    struct err e = {0};
    save(chain);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    json_digest_use_seed(seed + 1);
    struct scene s = begin(1 << 20);
    assert_int_equal(conversations_load(s.store, path, 20, &e), 0);
    assert_true(json_digest_seed() == seed);
    assert_int_equal(conversations_numbers(s.store).entries, 3);
    struct conversation_turn turn = turn_of(chain, 2, 7, 0, 0, 7);
    assert_true(conversations_find(s.store, &turn, &s.texts, &got));
    assert_true(slice_eq(got.head, SLICE("the tools of all")) && got.change_count == 1 && got.tools == 1);
    assert_true(slice_eq(got.changes[0].text, SLICE("a change")) && got.changes[0].message == 4);
    turn = turn_of(chain, 3, 3, 0, 0, 1);
    assert_true(conversations_find(s.store, &turn, &s.texts, &got) && got.change_count == 0);
    turn = turn_of(chain, 4, 3, 0, 0, 1);
    assert_false(conversations_find(s.store, &turn, &s.texts, &got));
    end(&s);
    unlink(path);
    s = begin(1 << 20);
    assert_int_equal(conversations_load(s.store, path, 20, &e), 0); /* there is none */
    end(&s);
}

TEST(what_is_read_of_a_file_is_charged)
{
    uint64_t chain[MESSAGES_MAX + 1];
    struct err e = {0};
    save(chain);
    struct scene s = begin(1 << 20);
    struct account_numbers n = account_numbers(s.account);
    assert_int_equal(account_reserve(s.account, n.limit - n.used), 0);
    assert_int_equal(conversations_load(s.store, path, 20, &e), -ENOMEM);
    account_release(s.account, n.limit - n.used);
    assert_int_equal(conversations_numbers(s.store).entries, 0);
    end(&s);
    unlink(path);
}

/* A start neither waits for a pipe nor follows a link. */
TEST(only_a_file_of_its_own_is_read)
{
    struct scene s = begin(1 << 20);
    struct err e = {0};
    char own[128];
    snprintf(own, sizeof(own), "/tmp/test_conversations_own.%d", getpid());
    unlink(own);
    assert_int_equal(mkfifo(own, 0600), 0);
    assert_int_equal(conversations_load(s.store, own, 20, &e), -EINVAL);
    assert_non_null(strstr(e.text, "a pipe"));
    unlink(own);
    assert_int_equal(symlink("/dev/null", own), 0);
    assert_int_equal(conversations_load(s.store, own, 20, &e), -ELOOP);
    unlink(own);
    end(&s);
}

/* The sum of the file, as it has it behind its 32nd byte. */
static void sum_up(char *bytes, uint64_t len)
{
    memcpy(bytes + 24, &len, sizeof(len));
    uint64_t sum = hash_bytes_seeded(bytes, 32, 0);
    for (uint64_t at = 40; at < len; at += 4096)
        sum = hash_bytes_seeded(bytes + at, MIN_OF(len - at, (uint64_t)4096), sum);
    memcpy(bytes + 32, &sum, sizeof(sum));
}

static int load_bytes(struct scene *s, const char *bytes, size_t len)
{
    struct err e = {0};
    FILE *f = fopen(path, "wb");
    assert_int_equal(fwrite(bytes, 1, len, f), len);
    fclose(f);
    int r = conversations_load(s->store, path, 20, &e);
    assert_true(r == 0 || e.text[0]);
    check(s);
    return r;
}

TEST(a_damaged_file_gives_none_and_a_wrong_one_stays_within_bounds)
{
    uint64_t chain[MESSAGES_MAX + 1], seed = json_digest_seed();
    static char bytes[16384], wrong[sizeof(bytes)];
    save(chain);
    FILE *f = fopen(path, "rb");
    size_t len = fread(bytes, 1, sizeof(bytes), f);
    fclose(f);
    assert_true(len > 1000 && len < sizeof(bytes));
    struct scene s = begin(1 << 20);
    struct rng rng = {1, 0};
    for (uint32_t i = 0; i < 1000; i++) {
        size_t at = rng_below(&rng, len);
        memcpy(wrong, bytes, len);
        wrong[at] ^= (char)(1 + rng_below(&rng, 255));
        assert_int_equal(load_bytes(&s, wrong, len), -EINVAL);
        assert_int_equal(load_bytes(&s, bytes, rng_below(&rng, len)), -EINVAL);
        sum_up(wrong, len);
        int r = load_bytes(&s, wrong, len);
        assert_true(r == 0 || r == -EINVAL || r == -ENOMEM);
    }
    assert_int_equal(load_bytes(&s, bytes, len), 0);
    end(&s);
    json_digest_use_seed(seed);
    unlink(path);
}

TEST_MAIN()
