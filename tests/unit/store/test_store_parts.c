/* Parts of the SSD tier: files, names, the table, the staging. */
#include "test_rng.h"
#include "test_store.h"

#include "base/none.h"
#include "store/staging.h"
#include "store/store_file.h"
#include "store/store_table.h"

static char *sealed(uint32_t number, uint64_t *bytes)
{
    struct store_header h = {
        .kind = TIER_PAGE, .payload_bytes = PAGE_BYTES, .key = key_of(number), .identity = identity_of(3)};
    *bytes = store_file_bytes(PAGE_BYTES);
    char *file = malloc(*bytes);
    assert_non_null(file);
    fill(file + STORE_BLOCK_BYTES, TIER_PAGE, number);
    store_file_seal(file, &h);
    return file;
}

TEST(a_file_says_what_it_is)
{
    uint64_t bytes;
    struct store_header h;
    char *file = sealed(5, &bytes);
    assert_int_equal(store_file_check(file, bytes, &h), 0);
    struct prefix_key key = key_of(5);
    struct store_identity id = identity_of(3);
    assert_true(h.kind == TIER_PAGE && h.payload_bytes == PAGE_BYTES && prefix_key_eq(&h.key, &key));
    assert_memory_equal(&h.identity, &id, sizeof(id));
    assert_true(is_filled(file + STORE_BLOCK_BYTES, TIER_PAGE, 5));
    free(file);
}

TEST(damage_of_any_byte_is_seen)
{
    uint64_t bytes;
    struct store_header h;
    char *file = sealed(7, &bytes);
    for (uint64_t i = 0; i < bytes; i++) {
        char was = file[i];
        file[i] = (char)(was ^ (1 << i % 8));
        assert_true(store_file_check(file, bytes, &h) < 0);
        file[i] = was;
    }
    for (uint64_t len = 0; len < bytes; len += 4096)
        assert_int_equal(store_file_check(file, len, &h), -EBADMSG);
    assert_int_equal(store_file_check(file, bytes, &h), 0);
    free(file);
}

TEST(pending_tokens_are_a_snapshots)
{
    uint64_t bytes;
    struct store_header h, back;
    char *file = sealed(9, &bytes);
    assert_int_equal(store_file_check(file, bytes, &h), 0);
    assert_int_equal(h.pending, 0);
    h.kind = TIER_SNAPSHOT;
    h.pending = 0x01020304;
    store_file_seal(file, &h);
    assert_int_equal(store_file_check(file, bytes, &back), 0);
    assert_int_equal(back.pending, h.pending);
    for (h.kind = 0; h.kind <= TIER_KINDS; h.kind++) {
        store_file_seal(file, &h);
        assert_int_equal(store_file_check(file, bytes, &back), h.kind == TIER_SNAPSHOT ? 0 : -EINVAL);
    }
    h.kind = TIER_KINDS - 1;
    h.pending = 0;
    store_file_seal(file, &h);
    assert_int_equal(store_file_check(file, bytes, &back), 0);
    assert_int_equal(back.kind, TIER_KINDS - 1);
    h.kind = TIER_KINDS;
    store_file_seal(file, &h);
    assert_int_equal(store_file_check(file, bytes, &back), -EINVAL);
    free(file);
}

TEST(names_and_nothing_else_are_parsed)
{
    char path[STORE_PATH_BYTES], *name = path + 4;
    for (uint32_t i = 0; i < 100; i++) {
        struct prefix_key key = key_of(i), back;
        enum tier_kind kind = i % TIER_KINDS, kind_back;
        store_file_path(&key, kind, path);
        assert_int_equal(strlen(name), STORE_NAME_BYTES - 1);
        assert_true(path[0] == name[0] && path[2] == name[1]);
        assert_true(store_file_parse_name(name, &back, &kind_back) && kind_back == kind &&
                    prefix_key_eq(&key, &back));
        for (size_t at = 0; at < strlen(name); at++) {
            char was = name[at];
            name[at] = 'G';
            assert_false(store_file_parse_name(name, &back, &kind_back));
            name[at] = 0;
            assert_false(store_file_parse_name(name, &back, &kind_back));
            name[at] = was;
        }
    }
    assert_false(store_file_parse_name("", &(struct prefix_key){{0}}, &(enum tier_kind){0}));
}

/* ---- the table against a plain list ---- */

#define KEYS 64

/* Entry that the table has; an array of them is in the order of last use. */
struct known {
    uint32_t number, share;
    uint64_t used_ns;
};

static uint64_t amount_of(const struct known *all, uint32_t count, uint32_t share)
{
    uint64_t sectors = 0;
    for (uint32_t i = 0; i < count; i++)
        sectors += all[i].share == share ? all[i].number + 1 : 0;
    return sectors;
}

/* Index of the entry that makes room. */
static uint32_t expected_victim(const struct known *all, uint32_t count, uint64_t now_ns)
{
    uint32_t best = 0;
    if (now_ns - all[0].used_ns >= STORE_STALE_NS)
        return best;
    for (uint32_t i = 1; i < count; i++)
        if (amount_of(all, count, all[i].share) > amount_of(all, count, all[best].share))
            best = i;
    return best;
}

PROPERTY(the_table_finds_what_is_there_and_gives_up_by_shares, seed)
{
    struct rng rng = {seed, 0};
    struct arena *a;
    struct store_table *t;
    uint32_t entries = 8 + (uint32_t)rng_below(&rng, 40), entry_of[KEYS], count = 0;
    struct known order[KEYS];
    uint64_t now_ns = 0;
    assert_int_equal(arena_create(&(struct arena_opts){.bytes_max = store_table_bytes(entries) + 4096}, &a),
                     0);
    assert_int_equal(store_table_create(a, entries, &t), 0);
    memset(entry_of, 0xff, sizeof(entry_of));
    for (int i = 0; i < 600; i++) {
        uint32_t n = (uint32_t)rng_below(&rng, KEYS);
        struct prefix_key key = key_of(n);
        assert_int_equal(store_table_find(t, &key, n % TIER_KINDS), entry_of[n]);
        assert_int_equal(store_table_find(t, &key, (n + 1) % TIER_KINDS), NONE);
        uint32_t at = 0, share = (uint32_t)rng_below(&rng, 3);
        while (at < count && order[at].number != n)
            at++;
        now_ns += 1 + rng_below(&rng, 3) * STORE_STALE_NS / 100;
        if (entry_of[n] == NONE) {
            uint32_t entry = store_table_add(t, &key, n % TIER_KINDS, share ? share : STORE_SHARE_UNKNOWN);
            assert_true((entry == NONE) == (count == entries));
            if (entry == NONE)
                continue;
            assert_int_equal(store_table_find(t, &key, n % TIER_KINDS), entry);
            store_table_store(t, entry, n + 1, now_ns);
            entry_of[n] = entry;
            order[count++] = (struct known){n, share ? share : STORE_SHARE_UNKNOWN, now_ns};
        } else if (rng_below(&rng, 2)) {
            store_table_touch(t, entry_of[n], share, now_ns);
            memmove(order + at, order + at + 1, (count - at - 1) * sizeof(*order));
            order[count - 1] = (struct known){n, share, now_ns};
        } else {
            uint32_t victim = store_table_victim(t, now_ns), number;
            at = expected_victim(order, count, now_ns);
            number = order[at].number;
            assert_int_equal(victim, entry_of[number]);
            store_table_remove(t, victim);
            entry_of[number] = NONE;
            memmove(order + at, order + at + 1, (--count - at) * sizeof(*order));
        }
        struct store_table_numbers numbers;
        store_table_numbers(t, &numbers);
        uint64_t sectors = 0;
        for (uint32_t k = 0; k < count; k++)
            sectors += order[k].number + 1;
        assert_int_equal(store_table_pages(&numbers) + numbers.stored[TIER_SNAPSHOT], count);
        assert_int_equal(numbers.sectors, sectors);
    }
    arena_free(a);
}

PROPERTY(the_start_puts_files_into_the_order_of_their_use, seed)
{
    struct rng rng = {seed, 0};
    struct arena *a;
    struct store_table *t;
    uint32_t count = (uint32_t)rng_below(&rng, 300);
    assert_int_equal(arena_create(&(struct arena_opts){.bytes_max = store_table_bytes(5000) + 4096}, &a), 0);
    assert_int_equal(store_table_create(a, 5000, &t), 0);
    for (uint32_t i = 0; i < count; i++) {
        struct prefix_key key = key_of(i);
        uint32_t entry = store_table_add(t, &key, TIER_PAGE, STORE_SHARE_UNKNOWN);
        store_table_store(t, entry, 1, rng_below(&rng, 1000));
    }
    store_table_sort(t);
    uint64_t before = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t entry = store_table_victim(t, 1000);
        assert_true(store_table_at(t, entry)->used_ns >= before);
        before = store_table_at(t, entry)->used_ns;
        store_table_remove(t, entry);
    }
    assert_int_equal(store_table_victim(t, 1000), NONE);
    arena_free(a);
}

/* ---- the staging ---- */

PROPERTY(pieces_of_the_staging_never_overlap, seed)
{
    struct rng rng = {seed, 0};
    struct staging s;
    struct {
        uint32_t first, blocks;
    } held[64];
    uint32_t count = 0, used = 0, blocks = 1 + (uint32_t)rng_below(&rng, 300);
    struct charge charge = account_charge(test_account(ACCOUNT_NO_LIMIT));
    assert_int_equal(staging_init(&s, blocks * 4096, &charge), 0);
    for (int i = 0; i < 400; i++) {
        uint32_t wanted = 1 + (uint32_t)rng_below(&rng, 40);
        if (count < 64 && rng_below(&rng, 2)) {
            uint32_t first = staging_take(&s, wanted);
            if (first == NONE) {
                assert_true(used > 0 || wanted > blocks);
                continue;
            }
            assert_true(first + wanted <= blocks);
            for (uint32_t k = 0; k < count; k++)
                assert_true(first + wanted <= held[k].first || held[k].first + held[k].blocks <= first);
            memset(staging_at(&s, first), i, wanted * 4096);
            held[count].first = first;
            held[count++].blocks = wanted;
            used += wanted;
        } else if (count > 0) {
            uint32_t k = (uint32_t)rng_below(&rng, count);
            staging_give(&s, held[k].first, held[k].blocks);
            used -= held[k].blocks;
            held[k] = held[--count];
        }
        assert_int_equal(s.used, used);
    }
    staging_done(&s);
    test_ledger_after(true);
}

TEST_MAIN()
