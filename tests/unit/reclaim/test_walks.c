/* The walks over invariants: their findings, the names they report, and how much they check. */
#define TEST_SEQS  3
#define TEST_PAGES 40
#include "unit/sched/test_sched_prefix.h"

#include "base/arena.h"
#include "base/check.h"
#include "cache/page_pool.h"
#include "cache/page_state.h"
#include "cache/prefix_index.h"
#include "cache/prefix_key.h"
#include "cache/prefix_state.h"
#include "memory/ledger_state.h"
#include "memory/units.h"
#include "reclaim/holders_state.h"
#include "sched/sched_state.h"

#include <errno.h>

struct page_pool_opts;

enum { PROMPT_PAGES = 4 };

static void name_seq(const struct sched_seq *seq, char ret[SCHED_NAME_BYTES])
{
    snprintf(ret, SCHED_NAME_BYTES, "number %llu", (unsigned long long)seq->tenant_id);
}

/* A prompt of whole pages and a token; each sequence has a tenant of its own. */
static void enter(struct fixture *f, uint32_t i)
{
    struct sched_seq *seq = &f->seqs[i];
    f->cuts[i][0] = PROMPT_PAGES * PAGE_TOKENS;
    for (uint32_t k = 0; k < 16; k++)
        memset(&f->keys[i][k], (int)(1 + i * 16 + k), sizeof(struct prefix_key));
    *seq = (struct sched_seq){.pages = {f->tables[i]},
                              .tokens = PROMPT_PAGES * PAGE_TOKENS + 1,
                              .tokens_limit = PROMPT_PAGES * PAGE_TOKENS + 40,
                              .arrival_ns = f->ev.now_ns,
                              .tenant_id = 70 + i,
                              .keys = f->keys[i],
                              .key_count = PROMPT_PAGES,
                              .cuts = f->cuts[i],
                              .cut_count = 1};
    assert_int_equal(sched_add(f->sched, seq), 0);
}

/* Sequence 0 has ended and left its pages as cache; 1 and 2 decode. */
static void open_scene(struct fixture *f)
{
    struct sched_opts o = open_pools(f, 12);
    f->ev.tokens_shared = f->ev.tokens_alone = o.tokens_max = 1024;
    o.name = name_seq;
    open_sched(f, &o);
    for (uint32_t i = 0; i < SEQS; i++)
        enter(f, i);
    for (uint32_t i = 0; i < 4; i++)
        step(f);
    sched_remove(f->sched, &f->seqs[0]);
    assert_true(f->seqs[1].phase == SCHED_DECODING && f->seqs[2].phase == SCHED_DECODING);
    sched_check(f->sched);
    page_pool_check(f->pages);
    prefix_index_check(f->index);
}

/* All cached pages are sequence 0's. */
static uint32_t first_cached(const struct fixture *f)
{
    const struct share_list *c = f->pages->shares;
    while (c->amount == 0)
        c++;
    assert_int_equal(c->amount, page_pool_cached(f->pages));
    return c->oldest;
}

/* ---- pages ---- */

TEST(a_wrong_reference_count_names_its_page)
{
    struct fixture f;
    char words[64];
    open_scene(&f);
    uint32_t cached = first_cached(&f), used = f.tables[1][PROMPT_PAGES];
    snprintf(words, sizeof(words), "page %u: listed as cached, with 1 references", cached);
    f.pages->pages[cached].refs++;
    assert_stops_saying(page_pool_check(f.pages), words);
    f.pages->pages[cached].refs--;
    /* A leak: the pool itself is at peace with it. */
    page_pool_ref(f.pages, cached);
    page_pool_check(f.pages);
    snprintf(words, sizeof(words), "page %u of group 0: 1 references, 0 of sequences, leases and agents",
             cached);
    assert_stops_saying(sched_check(f.sched), words);
    page_pool_unref(f.pages, cached);
    f.pages->pages[used].refs++;
    assert_stops_saying(sched_check(f.sched), "sequence number 71: entry 4 of its table");
    f.pages->pages[used].refs--;
    f.pages->pages[f.tables[2][0]].refs++;
    snprintf(words, sizeof(words), "page %u of group 0: 2 references, 1 of", f.tables[2][0]);
    assert_stops_saying(sched_check(f.sched), words);
    f.pages->pages[f.tables[2][0]].refs--;
    sched_check(f.sched);
    close_sched(&f);
}

TEST(a_broken_list_of_cached_pages_names_the_page)
{
    struct fixture f;
    open_scene(&f);
    uint32_t second = f.pages->pages[first_cached(&f)].next, third = f.pages->pages[second].next;
    f.pages->pages[first_cached(&f)].next = third;
    assert_stops_saying(page_pool_check(f.pages), "is not linked with it");
    f.pages->pages[first_cached(&f)].next = second;
    f.pages->cached++;
    assert_stops_saying(page_pool_check(f.pages), "pages are cached");
    f.pages->cached--;
    close_sched(&f);
}

/* ---- sequences ---- */

TEST(a_wrong_table_names_its_sequence)
{
    struct fixture f;
    open_scene(&f);
    uint32_t *table = f.tables[2], right = table[1];
    table[1] = PAGES;
    assert_stops_saying(sched_check(f.sched),
                        "sequence number 72: entry 1 of its table of group 0 is page 40");
    table[1] = PAGES - 1;
    assert_stops_saying(sched_check(f.sched), "which has 0 references");
    table[1] = table[0];
    assert_stops_saying(sched_check(f.sched), "which is another prefix's");
    table[1] = f.tables[1][1];
    assert_stops_saying(sched_check(f.sched), "which is another prefix's");
    table[1] = right;
    f.seqs[1].page_count--;
    assert_stops_saying(sched_check(f.sched), "sequence number 71: ");
    f.seqs[1].page_count++;
    close_sched(&f);
}

TEST(a_tenants_wrong_account_names_it)
{
    struct fixture f;
    open_scene(&f);
    struct share *x = f.seqs[1].share, *y = f.seqs[2].share;
    x->seqs++;
    assert_stops_saying(sched_check(f.sched), "tenants have 3 sequences, there are 2");
    y->seqs--;
    assert_stops_saying(sched_check(f.sched), "tenant 48: 0 sequences");
    y->seqs++;
    x->seqs--;
    x->running = 0;
    y->running = 2;
    assert_stops_saying(sched_check(f.sched), "tenant 48: 1 sequences, 2 of them with a place");
    x->running = y->running = 1;
    x->weight = 0;
    assert_stops_saying(shares_check(&f.sched->shares), "tenant 47: weight 0");
    x->weight = 1;
    close_sched(&f);
}

/* ---- the index ---- */

TEST(a_wrong_prefix_names_its_node)
{
    struct fixture f;
    char words[64];
    open_scene(&f);
    uint32_t node = prefix_index_node(f.index, &f.keys[0][1]);
    struct node *n = &f.index->nodes[node];
    snprintf(words, sizeof(words), "prefix node %u: depth 7", node);
    n->depth = 7;
    assert_stops_saying(prefix_index_check(f.index), words);
    n->depth = 2;
    uint32_t child = n->child;
    n->child = node;
    assert_stops_saying(prefix_index_check(f.index), "not linked as a child of node");
    n->child = child;
    uint32_t page = f.index->groups[0].page_of[node];
    f.index->groups[0].page_of[node] = f.tables[1][0];
    assert_stops_saying(prefix_index_check(f.index), "is not its own");
    f.index->groups[0].page_of[node] = page;
    close_sched(&f);
}

/* ---- accounts ---- */

TEST(a_wrong_account_is_named_with_its_path)
{
    struct account *a = test_account(1 << 20), *b = NULL;
    assert_int_equal(account_open(a, "kv", ACCOUNT_ANON, ACCOUNT_NO_LIMIT, &b), 0);
    assert_int_equal(account_reserve(b, 4096), 0);
    account_use(b, 4096);
    ledger_check(test_ledger());
    b->n.used = 5000;
    b->n.peak = 5000;
    assert_stops_saying(ledger_check(test_ledger()), "account process/test/kv: used 5000, reserved 4096");
    assert_stops_saying(account_check(b), "account process/test/kv: ");
    b->n.used = 4096;
    a->n.used = 0;
    assert_stops_saying(ledger_check(test_ledger()), "account process/test: used 0");
    a->n.used = 4096;
    a->taken = 0;
    assert_stops_saying(ledger_check(test_ledger()), "account process/test: used 4096, reserved 4096");
    a->taken = 4096;
    b->n.reserved++;
    assert_stops_saying(ledger_check(test_ledger()), "account process/test/kv: ");
    b->n.reserved--;
    account_unuse(b, 4096);
    account_release(b, 4096);
    account_close(b);
}

/* ---- holders ---- */

enum { LIVE, OTHER, CLOSING, ORPHAN, HOLDERS };

struct owners {
    struct holders *list;
    struct holder *h[HOLDERS];
    struct units *left;
    bool refuses;
};

static int take_no_ask(void *arg, struct holder_ask *ask)
{
    (void)arg;
    (void)ask;
    return -EAGAIN;
}

static void take_poke(void *arg)
{
    (void)arg;
}

static int refuse_decommit(void *arg)
{
    return *(const bool *)arg ? -EINVAL : 0;
}

/* The orphan has one commit unit. */
static void make_orphan(struct owners *o)
{
    struct units_faults faults = {refuse_decommit, &o->refuses};
    assert_int_equal(units_create(test_account(ACCOUNT_NO_LIMIT), UNIT_BYTES, 2, &o->left), 0);
    assert_int_equal(unit_commit(o->left, 0), 0);
    o->refuses = true;
    units_set_faults(&faults);
    assert_int_equal(units_free(o->left), -EINVAL);
    units_set_faults(NULL);
    holder_close(o->h[ORPHAN]);
    holder_remove(o->h[ORPHAN], &o->left, 1);
}

static void open_owners(struct owners *o)
{
    static const char *const names[HOLDERS] = {"live", "other", "closing", "orphan"};
    static const struct holder_ops ops = {take_no_ask, take_poke};
    struct holders_opts opts = {test_ledger(), 1000};
    struct holder_numbers n = {.held_bytes = 300, .free_bytes = 100, .cached_bytes = 200, .oldest_ns = 5};
    *o = (struct owners){0};
    assert_int_equal(holders_create(&opts, &o->list), 0);
    for (uint32_t i = 0; i < HOLDERS; i++) {
        assert_int_equal(holder_add(o->list, domain_machine(), names[i], &o->h[i]), 0);
        holder_open(o->h[i], &ops, o);
        assert_true(holder_allow(o->h[i], 200, 7) >= 200);
        holder_publish(o->h[i], &n, 7);
        holders_check(o->list);
    }
    holder_close(o->h[CLOSING]);
    make_orphan(o);
    holders_check(o->list);
}

static void close_owners(struct owners *o)
{
    struct holders_reclaimed r;
    for (uint32_t i = LIVE; i <= OTHER; i++)
        holder_close(o->h[i]);
    for (uint32_t i = LIVE; i <= CLOSING; i++)
        holder_remove(o->h[i], NULL, 0);
    holders_reclaim(o->list, NULL, HOLDER_CLEAR, 1000000, &r);
    assert_int_equal(r.bytes, UNIT_BYTES);
    holders_check(o->list);
    holders_free(o->list);
}

/* The damage is done in the process that stops. */
#define DAMAGED(damage, words) assert_stops_saying(((damage), holders_check(o.list)), words)

TEST(a_wrong_holder_is_named)
{
    struct owners o;
    open_owners(&o);
    struct holder *live = o.h[LIVE], *closing = o.h[CLOSING], *orphan = o.h[ORPHAN];
    DAMAGED(live->share.cached++, "holder live: 200 bytes cached, 201 of them in its share");
    DAMAGED(live->share.wanted--, "holder live: 200 bytes cached, 199 wanted");
    DAMAGED(live->share.allowed--, "holder live: 200 bytes cached, 199 allowed");
    DAMAGED(live->share.asked = 201, "holder live: 200 bytes cached, 201 are to be evicted");
    DAMAGED(live->now.free_bytes = 301, "holder live: 300 bytes held, 301 of them free");
    DAMAGED(live->want = WANT_ASKED, "holder live: wants no bytes");
    DAMAGED(live->left[0] = o.left, "holder live: live, and has an orphan's ranges");
    DAMAGED(live->freeing = true, "holder live: live, and has an orphan's ranges");
    DAMAGED(live->id = 9, "holder live: number 9, and the next is 5");
    DAMAGED(live->state = HOLDER_CLOSING, "holder live: closing, and the budget counts its share 1 times");
    DAMAGED(closing->state = HOLDER_LIVE, "holder closing: live, and the budget counts its share 0 times");
    DAMAGED(closing->ops = live->ops, "holder closing: closing, and it can be asked");
    DAMAGED((closing->want_bytes = 1, closing->want = WANT_TAKEN), "holder closing: closing, and it wants");
    DAMAGED(closing->share.allowed = 1, "holder closing: closing, 0 bytes cached, 1 allowed");
    DAMAGED(orphan->now.held_bytes++, "holder orphan: an orphan's ranges have 2097152 bytes, 2097153 held");
    DAMAGED(orphan->left[0] = NULL, "holder orphan: an orphan without a range");
    close_owners(&o);
}

TEST(wrong_sums_over_holders_are_found)
{
    struct owners o;
    open_owners(&o);
    DAMAGED(o.list->count++, "4 holders, 5 counted");
    DAMAGED(o.list->domains[0].share_count--, "holder other: live, and the budget counts its share 0 times");
    DAMAGED(o.h[LIVE]->share.allowed += 900, "holders may cache 1300 bytes, the budget is 1000");
    DAMAGED(o.h[OTHER]->id = 1, "holder other: number 1 is not above that of the one before it");
    DAMAGED(o.h[OTHER]->link.prev = &o.h[ORPHAN]->link, "holder other: is not linked");
    struct account *orphans = o.list->domains[0].orphans;
    assert_int_equal(account_reserve(orphans, 4096), 0);
    DAMAGED(account_use(orphans, 4096), "account orphans: 2101248 bytes used, orphans have 2097152");
    account_release(orphans, 4096);
    close_owners(&o);
}

/* ---- how much is checked ---- */

struct patience {
    uint32_t asked, most;
};

static bool goes_on(void *arg)
{
    struct patience *p = arg;
    return ++p->asked < p->most;
}

/* Walks briefly: entries in use are looked at, too. */
static void walk_briefly(struct fixture *f)
{
    struct walk w = {.brief = true};
    assert_true(page_pool_walk(f->pages, &w) && prefix_index_walk(f->index, &w) && sched_walk(f->sched, &w));
}

TEST(a_brief_walk_finds_what_is_wrong_among_entries_in_use)
{
    struct fixture f;
    open_scene(&f);
    walk_briefly(&f);
    uint32_t cached = first_cached(&f), used = f.tables[2][0],
             node = prefix_index_node(f.index, &f.keys[0][3]);
    assert_stops_saying((f.pages->pages[cached].refs++, walk_briefly(&f)), "listed as cached, with 1");
    assert_stops_saying((f.pages->pages[used].refs++, walk_briefly(&f)), "2 references, 1 of sequences");
    assert_stops_saying((f.pages->referenced++, walk_briefly(&f)), "pages are referenced");
    assert_stops_saying((f.index->nodes[node].depth = 7, walk_briefly(&f)), "depth 7");
    assert_stops_saying((f.index->groups[0].node_of[cached] = NONE, walk_briefly(&f)), "is not its own");
    assert_stops_saying((f.index->numbers.nodes++, walk_briefly(&f)), "prefix nodes");
    assert_stops_saying((f.index->free = NONE, walk_briefly(&f)), "i == last");
    assert_stops_saying((f.seqs[1].node_pages++, walk_briefly(&f)), "sequence number 71");
    walk_briefly(&f);
    close_sched(&f);
}

TEST(a_brief_walk_passes_over_what_was_never_used)
{
    enum { MANY = 100000 };
    struct fixture f = {.kv = test_account(ACCOUNT_NO_LIMIT)};
    struct page_pool_opts pages = {.pages_max = MANY, .page_bytes = 1 << 16, .kv = f.kv};
    struct walk w = {.brief = true}, whole = {0};
    uint32_t page;
    assert_int_equal(arena_create(&(struct arena_opts){.bytes_max = (size_t)64 << 20}, &f.arena), 0);
    assert_int_equal(page_pool_create(f.arena, &pages, &f.pages), 0);
    struct prefix_index_opts index = {.groups = {{f.pages, pages.page_bytes, 0}}, .group_count = 1};
    assert_int_equal(prefix_index_create(f.arena, &index, &f.index), 0);
    assert_int_equal(page_pool_take(f.pages, &page), 0);
    assert_true(page_pool_walk(f.pages, &w) && prefix_index_walk(f.index, &w));
    assert_true(w.looked > UNIT_BYTES / pages.page_bytes && w.looked < 4 * UNIT_BYTES / pages.page_bytes);
    assert_true(page_pool_walk(f.pages, &whole) && prefix_index_walk(f.index, &whole));
    assert_true(whole.looked > 4 * MANY);
    /* The whole walk sees what lies beyond, wrong or not. */
    assert_stops_saying((f.pages->pages[MANY - 1].kept = true, page_pool_check(f.pages)),
                        "page 99999: taken 0");
    page_pool_unref(f.pages, page);
    page_pool_done(f.pages);
    arena_free(f.arena);
}

TEST(a_walk_looks_at_few_things_for_each_page_and_is_called_off_in_between)
{
    enum { MANY = 100000 };
    struct fixture f = {.kv = test_account(ACCOUNT_NO_LIMIT)};
    struct page_pool_opts pages = {.pages_max = MANY, .page_bytes = 64, .kv = f.kv};
    assert_int_equal(arena_create(&(struct arena_opts){.bytes_max = (size_t)64 << 20}, &f.arena), 0);
    assert_int_equal(page_pool_create(f.arena, &pages, &f.pages), 0);
    struct walk whole = {0};
    assert_true(page_pool_walk(f.pages, &whole));
    assert_true(whole.looked >= MANY && whole.looked <= 3 * MANY);
    struct patience p = {.most = 3};
    struct walk part = {.goes_on = goes_on, .arg = &p};
    assert_false(page_pool_walk(f.pages, &part));
    assert_true(part.called_off && part.looked == 3 * WALK_ASKS);
    page_pool_done(f.pages);
    arena_free(f.arena);
}

TEST_MAIN()
