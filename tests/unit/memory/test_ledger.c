/* The ledger: a reservation moves every account up to the root or none. */
#include "test_rng.h"
#include "test_domain.h"
#include "test_ledger.h"

#include "base/arena.h"
#include "base/check.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

static struct account *open_below(struct account *parent, const char *name, enum account_class class,
                                  uint64_t limit_bytes)
{
    struct account *a = NULL;
    assert_int_equal(account_open(parent, name, class, limit_bytes, &a), 0);
    return a;
}

static void expect(struct account *a, uint64_t reserved, uint64_t used, uint64_t peak)
{
    struct account_numbers n = account_numbers(a);
    assert_int_equal(n.reserved, reserved);
    assert_int_equal(n.used, used);
    assert_int_equal(n.peak, peak);
}

TEST(a_reservation_counts_up_to_the_root)
{
    struct account *root = ledger_root(test_ledger());
    struct account *model = open_below(root, "model", ACCOUNT_ANON, 1000);
    struct account *kv = open_below(model, "kv", ACCOUNT_ANON, ACCOUNT_NO_LIMIT);
    assert_int_equal(account_reserve(kv, 600), 0);
    account_use(kv, 500);
    expect(kv, 600, 500, 500);
    expect(model, 600, 500, 500);
    expect(root, 600, 500, 500);
    account_unuse(kv, 200);
    expect(root, 600, 300, 500);
    account_release(kv, 300);
    expect(model, 300, 300, 500);
    account_unuse(kv, 300);
    account_release(kv, 300);
    expect(root, 0, 0, 500);
    account_close(kv);
    account_close(model);
}

TEST(a_refusal_names_the_lowest_account_without_room)
{
    struct account *root = ledger_root(test_ledger());
    struct account_numbers n = {.name = "untouched"};
    struct account *model = open_below(root, "model", ACCOUNT_ANON, 1000);
    struct account *kv = open_below(model, "kv", ACCOUNT_ANON, 700);
    assert_false(account_refuses(kv, 700, &n));
    assert_string_equal(n.name, "untouched");
    assert_true(account_refuses(kv, 701, &n));
    assert_string_equal(n.name, "kv");
    assert_int_equal(account_reserve(model, 600), 0);
    assert_true(account_refuses(kv, 401, &n));
    assert_string_equal(n.name, "model");
    assert_int_equal(n.reserved, 600);
    assert_int_equal(n.limit, 1000);
    account_release(model, 600);
    account_close(kv);
    account_close(model);
}

TEST(what_is_spared_is_left_of_the_accounts_own_limit)
{
    struct account *root = ledger_root(test_ledger());
    struct account *model = open_below(root, "model", ACCOUNT_ANON, 1000);
    struct account *text = open_below(model, "text", ACCOUNT_ANON, 800);
    assert_int_equal(account_reserve_sparing(text, 701, 100), -ENOMEM);
    assert_int_equal(account_reserve_sparing(text, 1, 800), -ENOMEM);
    assert_int_equal(account_reserve_sparing(text, 1, UINT64_MAX), -ENOMEM);
    expect(root, 0, 0, 0);
    assert_int_equal(account_reserve_sparing(text, 700, 100), 0);
    assert_int_equal(account_reserve_sparing(text, 1, 100), -ENOMEM);
    assert_int_equal(account_reserve(text, 100), 0);
    expect(model, 800, 0, 0);
    account_release(text, 800);
    account_close(text);
    account_close(model);
}

TEST(over_any_limit_on_the_way_nothing_moves)
{
    struct account *root = ledger_root(test_ledger());
    struct account *model = open_below(root, "model", ACCOUNT_ANON, 1000);
    struct account *kv = open_below(model, "kv", ACCOUNT_ANON, 700);
    struct account *state = open_below(model, "state", ACCOUNT_ANON, ACCOUNT_NO_LIMIT);
    assert_int_equal(account_reserve(kv, 701), -ENOMEM);
    assert_int_equal(account_reserve(kv, UINT64_MAX), -ENOMEM);
    expect(root, 0, 0, 0);
    assert_int_equal(account_reserve(kv, 700), 0);
    assert_int_equal(account_reserve(state, 301), -ENOMEM);
    assert_int_equal(account_reserve(state, UINT64_MAX), -ENOMEM);
    assert_int_equal(account_reserve(kv, 1), -ENOMEM);
    expect(kv, 700, 0, 0);
    expect(state, 0, 0, 0);
    expect(model, 700, 0, 0);
    expect(root, 700, 0, 0);
    assert_int_equal(account_reserve(state, 300), 0);
    account_set_limit(ledger_root(test_ledger()), 1000);
    account_set_limit(model, ACCOUNT_NO_LIMIT);
    assert_int_equal(account_reserve(state, 1), -ENOMEM);
    expect(root, 1000, 0, 0);
    account_release(kv, 700);
    account_release(state, 300);
    account_close(kv);
    account_close(state);
    account_close(model);
}

TEST(a_floor_counts_above_at_once_and_is_then_used_up)
{
    struct account *root = ledger_root(test_ledger());
    struct account *models = open_below(root, "models", ACCOUNT_ANON, 1000);
    struct account *a = open_below(models, "a", ACCOUNT_ANON, 900),
                   *kv = open_below(a, "kv", ACCOUNT_ANON, 900);
    struct account *other = open_below(models, "b", ACCOUNT_ANON, ACCOUNT_NO_LIMIT);
    assert_int_equal(account_reserve(other, 300), 0);
    assert_int_equal(account_set_floor(a, 701), -ENOMEM);
    expect(a, 0, 0, 0);
    assert_int_equal(account_set_floor(a, 600), 0);
    expect(a, 600, 0, 0);
    expect(models, 900, 0, 0);
    assert_int_equal(account_would_free(a, 100), 0);
    /* The bytes of a floor are reserved for its account, and taking them costs nothing above. */
    assert_int_equal(account_reserve(other, 101), -ENOMEM);
    assert_int_equal(account_reserve(other, 100), 0);
    assert_int_equal(account_reserve(kv, 500), 0);
    expect(models, 1000, 0, 0);
    assert_int_equal(account_reserve(kv, 101), -ENOMEM);
    account_release(other, 50);
    assert_int_equal(account_reserve(kv, 150), 0);
    expect(a, 650, 0, 0);
    assert_int_equal(account_would_free(kv, 40), 40);
    assert_int_equal(account_would_free(kv, 650), 50);
    expect(models, 1000, 0, 0);
    account_use(kv, 650);
    ledger_check(test_ledger());
    account_unuse(kv, 650);
    account_release(kv, 650);
    expect(models, 950, 0, 650);
    assert_int_equal(account_set_floor(a, 901), -ENOMEM);
    assert_int_equal(account_set_floor(a, 100), 0);
    expect(models, 450, 0, 650);
    account_close(kv);
    account_close(a);
    expect(models, 350, 0, 650);
    account_release(other, 350);
    account_close(other);
    account_close(models);
}

TEST(a_limit_below_the_reserved_bytes_stops_growth_only)
{
    struct account *a = test_account(1000);
    assert_int_equal(account_reserve(a, 800), 0);
    account_set_limit(a, 500);
    assert_int_equal(account_reserve(a, 1), -ENOMEM);
    ledger_check(test_ledger());
    account_release(a, 500);
    assert_int_equal(account_reserve(a, 200), 0);
    assert_int_equal(account_reserve(a, 1), -ENOMEM);
    account_release(a, 500);
}

TEST(disk_blocks_are_no_memory)
{
    struct account *root = ledger_root(test_ledger());
    account_set_limit(root, 1000);
    struct account *ssd = open_below(root, "ssd", ACCOUNT_DISK, 1 << 20);
    assert_int_equal(account_reserve(ssd, 50000), 0);
    account_use(ssd, 50000);
    expect(root, 0, 0, 0);
    expect(ssd, 50000, 50000, 50000);
    assert_int_equal(account_reserve(ssd, 1 << 20), -ENOMEM);
    ledger_check(test_ledger());
    account_unuse(ssd, 50000);
    account_release(ssd, 50000);
    expect(ssd, 0, 0, 50000);
    account_close(ssd);
}

TEST(a_charge_reserves_and_uses_at_once)
{
    struct account *a = test_account(1 << 20);
    struct charge c = account_charge(a);
    struct arena *arena = NULL, *second = NULL;
    assert_int_equal(arena_create(&(struct arena_opts){.bytes_max = 2 << 20, .charge = &c}, &arena), 0);
    assert_non_null(arena_alloc(arena, 300000));
    uint64_t held = arena_committed_bytes(arena);
    expect(a, held, held, held);
    assert_null(arena_alloc(arena, 1 << 20));
    expect(a, held, held, held);
    arena_free(arena);
    expect(a, 0, 0, held);
    account_set_limit(a, 100);
    assert_int_equal(arena_create(&(struct arena_opts){.bytes_max = 1, .charge = &c}, &second), -ENOMEM);
    expect(a, 0, 0, held);
}

TEST(a_leak_stops_the_program_where_it_is_found)
{
    struct account *a = test_account(1000);
    struct account *child = open_below(a, "child", ACCOUNT_ANON, 1000);
    assert_stops(account_close(a));
    assert_int_equal(account_reserve(child, 10), 0);
    assert_stops(account_close(child));
    assert_stops(ledger_free(test_ledger()));
    assert_stops(account_release(child, 11));
    assert_stops(account_use(child, 11));
    account_use(child, 10);
    assert_stops(account_release(child, 1));
    assert_stops(account_unuse(child, 11));
    account_unuse(child, 10);
    account_release(child, 10);
    account_close(child);
    account_close(NULL);
    ledger_free(NULL);
}

struct seen {
    char names[8][ACCOUNT_NAME_MAX];
    uint32_t depths[8], count;
};

static void see(void *arg, const struct account_numbers *n)
{
    struct seen *s = arg;
    assert_true(s->count < 8);
    memcpy(s->names[s->count], n->name, sizeof(n->name));
    s->depths[s->count++] = n->depth;
}

TEST(a_walk_shows_parents_before_children)
{
    struct account *root = ledger_root(test_ledger());
    struct account *model = open_below(root, "model", ACCOUNT_ANON, 1000);
    struct account *kv = open_below(model, "kv", ACCOUNT_ANON, 500);
    struct account *other = open_below(root, "other", ACCOUNT_FILE, 10);
    struct seen s = {0};
    ledger_walk(test_ledger(), see, &s);
    assert_int_equal(s.count, 4);
    const char *const names[] = {"process", "model", "kv", "other"};
    const uint32_t depths[] = {0, 1, 2, 1};
    for (int i = 0; i < 4; i++) {
        assert_string_equal(s.names[i], names[i]);
        assert_int_equal(s.depths[i], depths[i]);
    }
    account_set_planned(kv, 77);
    struct account_numbers n = account_numbers(kv);
    assert_true(n.planned == 77 && n.limit == 500 && n.class == ACCOUNT_ANON && n.children == 0);
    assert_int_equal(account_numbers(root).children, 2);
    assert_int_equal(account_numbers(model).children, 1);
    account_close(kv);
    account_close(model);
    account_close(other);
    assert_int_equal(account_numbers(root).children, 0);
}

TEST(a_long_name_is_cut_and_classes_have_names)
{
    char name[200];
    memset(name, 'n', sizeof(name) - 1);
    name[sizeof(name) - 1] = 0;
    struct account *a = open_below(ledger_root(test_ledger()), name, ACCOUNT_PINNED, 1);
    assert_int_equal(strlen(account_numbers(a).name), ACCOUNT_NAME_MAX - 1);
    account_close(a);
    assert_string_equal(account_class_name(ACCOUNT_ANON), "anon");
    assert_string_equal(account_class_name(ACCOUNT_DISK), "disk");
    assert_stops(account_class_name(ACCOUNT_CLASS_COUNT));
}

enum { ACCOUNTS = 12 };

/* The expected tree, by adding up: an account with a floor counts as at least that above. */
struct plain {
    int parent[ACCOUNTS];
    uint64_t limit[ACCOUNTS], floor[ACCOUNTS], own_reserved[ACCOUNTS], own_used[ACCOUNTS];
    uint64_t taken[ACCOUNTS]; /* reserved there and below */
};

static void add_up(struct plain *p)
{
    memcpy(p->taken, p->own_reserved, sizeof(p->taken));
    for (int i = ACCOUNTS - 1; i > 0; i--)
        p->taken[p->parent[i]] += MAX_OF(p->taken[i], p->floor[i]);
}

/* May it become like `want`? */
static bool may_become(const struct plain *is, struct plain *want)
{
    bool fits = true;
    add_up(want);
    for (int i = 0; i < ACCOUNTS; i++)
        fits = fits && (want->taken[i] <= is->taken[i] || want->taken[i] <= is->limit[i]);
    return fits;
}

static void change(struct plain *p, struct account *a, int at, uint64_t bytes, uint64_t kind)
{
    struct plain want = *p;
    switch (kind) {
    case 0:
        want.own_reserved[at] += bytes;
        assert_int_equal(account_reserve(a, bytes), may_become(p, &want) ? 0 : -ENOMEM);
        break;
    case 1:
        bytes = MIN_OF(bytes, p->own_reserved[at] - p->own_used[at]);
        account_use(a, bytes);
        p->own_used[at] += bytes;
        return;
    case 2:
        bytes = MIN_OF(bytes, p->own_used[at]);
        account_unuse(a, bytes);
        p->own_used[at] -= bytes;
        return;
    case 3:
        want.floor[at] = at > 0 ? bytes : 0;
        assert_int_equal(account_set_floor(a, want.floor[at]),
                         want.floor[at] <= p->limit[at] && may_become(p, &want) ? 0 : -ENOMEM);
        if (want.floor[at] > p->limit[at])
            return;
        break;
    default:
        bytes = MIN_OF(bytes, p->own_reserved[at] - p->own_used[at]);
        want.own_reserved[at] -= bytes;
        account_release(a, bytes);
    }
    if (may_become(p, &want))
        *p = want;
}

/* A tree of random shape against plain sums: a reservation succeeds exactly when all limits on its way allow
 * it. */
PROPERTY(the_tree_agrees_with_plain_sums, seed)
{
    struct rng rng = {seed, 0};
    struct account *accounts[ACCOUNTS] = {ledger_root(test_ledger())};
    struct plain p = {.parent = {-1}, .limit = {5000}};
    account_set_limit(accounts[0], p.limit[0]);
    for (int i = 1; i < ACCOUNTS; i++) {
        p.parent[i] = (int)rng_below(&rng, (uint64_t)i);
        p.limit[i] = rng_below(&rng, 4000);
        accounts[i] = open_below(accounts[p.parent[i]], "a", ACCOUNT_ANON, p.limit[i]);
    }
    for (int step = 0; step < 300; step++) {
        int at = (int)rng_below(&rng, ACCOUNTS);
        change(&p, accounts[at], at, rng_below(&rng, 800), rng_below(&rng, 5));
        for (int i = 0; i < ACCOUNTS; i++)
            assert_int_equal(account_numbers(accounts[i]).reserved, MAX_OF(p.taken[i], p.floor[i]));
        ledger_check(test_ledger());
    }
    for (int i = ACCOUNTS - 1; i >= 0; i--) {
        account_unuse(accounts[i], p.own_used[i]);
        account_release(accounts[i], p.own_reserved[i]);
        if (i > 0)
            account_close(accounts[i]);
    }
    assert_int_equal(account_numbers(accounts[0]).reserved, 0);
}

enum { WORKERS = 4, ROUNDS = 20000 };

static void *reserve_and_release(void *arg)
{
    for (uint64_t i = 0; i < ROUNDS; i++) {
        uint64_t bytes = 1 + i % 7;
        if (account_reserve(arg, bytes) < 0)
            continue;
        account_use(arg, bytes);
        account_unuse(arg, bytes);
        account_release(arg, bytes);
    }
    return NULL;
}

TEST(threads_meet_in_the_root_and_leave_it_empty)
{
    struct account *root = ledger_root(test_ledger());
    account_set_limit(root, 12);
    pthread_t threads[WORKERS];
    for (int i = 0; i < WORKERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, reserve_and_release, test_account(10)), 0);
    for (int i = 0; i < 100; i++)
        ledger_check(test_ledger());
    for (int i = 0; i < WORKERS; i++)
        pthread_join(threads[i], NULL);
    struct account_numbers n = account_numbers(root);
    assert_true(n.reserved == 0 && n.used == 0 && n.peak > 0 && n.peak <= 12);
}

/* ---- several domains ---- */

static struct account *open_root(const struct domain *d, uint64_t limit_bytes)
{
    struct account *root = NULL;
    assert_int_equal(ledger_open_root(test_ledger(), d, limit_bytes, &root), 0);
    return root;
}

TEST(a_reservation_ends_at_the_root_of_its_domain)
{
    struct test_domain t = {0};
    const struct domain *d = test_domain_init(&t, "test:0");
    struct account_numbers n;
    assert_null(ledger_root_of(test_ledger(), d));
    struct account *machine = ledger_root(test_ledger()), *device = open_root(d, 1000);
    struct account *model = open_below(device, "model", ACCOUNT_ANON, ACCOUNT_NO_LIMIT);
    assert_ptr_equal(ledger_root_of(test_ledger(), d), device);
    assert_ptr_equal(ledger_root_of(test_ledger(), domain_machine()), machine);
    assert_true(account_domain(model) == d && account_root(model) == device);
    assert_int_equal(account_numbers(model).class, ACCOUNT_DEVICE);
    assert_int_equal(account_reserve(model, 900), 0);
    account_use(model, 900);
    expect(machine, 0, 0, 0);
    expect(device, 900, 900, 900);
    /* The machine has room, and that does not help. */
    assert_int_equal(account_reserve(model, 101), -ENOMEM);
    assert_true(account_refuses(model, 101, &n));
    assert_string_equal(n.name, "test:0");
    assert_true(n.is_root && n.domain == d && n.limit == 1000);
    assert_int_equal(account_reserve(machine, 101), 0);
    account_release(machine, 101);
    ledger_check(test_ledger());
    assert_stops(account_move(model, machine, 1));
    account_unuse(model, 900);
    account_release(model, 900);
    account_close(model);
    account_close(device);
    assert_null(ledger_root_of(test_ledger(), d));
}

TEST(pinned_memory_has_a_ceiling_and_counts_in_the_machine)
{
    struct test_domain t = {0};
    const struct domain *d = test_domain_init(&t, "pinned");
    t.domain.class = ACCOUNT_PINNED;
    struct account_numbers n;
    struct account *machine = ledger_root(test_ledger()), *pinned = open_root(d, 1000);
    struct account *copies = open_below(pinned, "copies", ACCOUNT_ANON, ACCOUNT_NO_LIMIT);
    assert_int_equal(account_numbers(copies).class, ACCOUNT_PINNED);
    assert_int_equal(account_reserve(copies, 600), 0);
    expect(machine, 600, 0, 0);
    assert_true(account_refuses(copies, 401, &n));
    assert_true(n.is_root && n.domain == d);
    account_set_limit(machine, 700);
    assert_true(account_refuses(copies, 101, &n));
    assert_true(n.is_root && n.domain == domain_machine());
    account_release(copies, 600);
    ledger_check(test_ledger());
    account_close(copies);
    account_close(pinned);
}

static void list_names(void *arg, const struct account_numbers *n)
{
    char *at = arg;
    snprintf(at + strlen(at), 200 - strlen(at), "%u %s %s; ", n->depth, n->name, n->domain->name);
}

TEST(a_walk_visits_each_domain_with_its_accounts)
{
    struct test_domain t[2] = {0};
    char names[200] = "";
    struct account *a = open_root(test_domain_init(&t[0], "test:0"), 10);
    struct account *b = open_root(test_domain_init(&t[1], "test:1"), 10);
    struct account *own = open_below(ledger_root(test_ledger()), "text", ACCOUNT_ANON, 10);
    struct account *model = open_below(a, "model", ACCOUNT_ANON, 10);
    ledger_walk(test_ledger(), list_names, names);
    assert_string_equal(names, "0 process machine; 1 text machine; 0 test:0 test:0; 1 model test:0; "
                               "0 test:1 test:1; ");
    account_close(own);
    account_close(model);
    account_close(a);
    account_close(b);
}

/* A root that is still open, and one that still has bytes. */
TEST(a_leak_on_a_device_stops_the_program)
{
    struct test_domain t = {0};
    struct account *root = open_root(test_domain_init(&t, "test:0"), 10);
    assert_stops(ledger_free(test_ledger()));
    assert_int_equal(account_reserve(root, 1), 0);
    assert_stops(account_close(root));
    account_release(root, 1);
    account_close(root);
}

TEST_MAIN()
