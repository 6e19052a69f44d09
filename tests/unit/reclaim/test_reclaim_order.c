/* Making room, simulated: models that hold, cache, run and rest; loads larger than the free memory; others
 * that take memory during a load. */
#include "test_rng.h"
#include "test.h"

#include "base/check.h"
#include "reclaim/reclaim_order.h"
#include "reclaim/victims.h"

#define MODELS 8
#define KEEP   100 /* bytes of the process itself */

struct model {
    bool loaded, busy, pinned, leased;
    uint64_t weights, used, cached, free; /* used: by requests */
    uint64_t reload_ns, idle_ns;
    bool stuck; /* says nothing when it is asked */
};

struct world {
    struct rng rng;
    uint64_t ceiling;
    struct model models[MODELS];
    enum reclaim_step furthest; /* furthest step of this wish */
};

static uint64_t held_by(const struct model *m)
{
    return m->loaded ? m->weights + m->used + m->cached + m->free : 0;
}

static uint64_t held(const struct world *w)
{
    uint64_t sum = KEEP;
    for (int i = 0; i < MODELS; i++)
        sum += held_by(&w->models[i]);
    return sum;
}

static bool is_idle(const struct model *m)
{
    return m->loaded && !m->busy && !m->pinned && !m->leased;
}

static uint64_t limit_of(uint64_t bytes, uint64_t most)
{
    return MIN_OF(bytes, most);
}

/* ---- the guard's view and acts ---- */

struct asked {
    bool silent[MODELS];
    bool idle_gave_nothing;
};

static struct reclaim_figures look(const struct world *w, const struct asked *a, uint64_t wanted)
{
    struct reclaim_figures l = {0};
    uint64_t projected = held(w) + wanted;
    l.needed_bytes = projected > w->ceiling ? limit_of(projected - w->ceiling, wanted) : 0;
    for (int i = 0; i < MODELS; i++) {
        const struct model *m = &w->models[i];
        if (!m->loaded)
            continue;
        l.free_bytes += m->free;
        l.cached_bytes += a->silent[i] ? 0 : m->cached;
        l.reach_bytes += m->free + m->cached;
        l.idle_bytes += is_idle(m) && !a->idle_gave_nothing ? held_by(m) : 0;
    }
    return l;
}

static void take_free(struct world *w, uint64_t bytes)
{
    for (int i = 0; i < MODELS; i++)
        if (w->models[i].loaded && !w->models[i].stuck)
            w->models[i].free -= limit_of(w->models[i].free, bytes);
}

static void take_cached(struct world *w, struct asked *a, uint64_t bytes)
{
    for (int i = 0; i < MODELS; i++) {
        struct model *m = &w->models[i];
        if (!m->loaded || m->cached == 0 || a->silent[i])
            continue;
        if (m->stuck)
            a->silent[i] = true;
        else
            m->cached -= limit_of(m->cached, 1 + rng_below(&w->rng, bytes));
        return;
    }
}

static void take_idle(struct world *w, struct asked *a, uint64_t bytes)
{
    struct victim v[MODELS];
    uint32_t count = 0, chosen;
    uint64_t room = w->ceiling - limit_of(held(w), w->ceiling);
    for (uint32_t i = 0; i < MODELS; i++)
        if (is_idle(&w->models[i]))
            v[count++] =
                (struct victim){i, held_by(&w->models[i]), w->models[i].reload_ns, w->models[i].idle_ns};
    chosen = bytes > room ? victims_choose(v, count, bytes - room) : 0;
    a->idle_gave_nothing = chosen == 0;
    for (uint32_t i = 0; i < chosen; i++) {
        assert_true(is_idle(&w->models[v[i].index]));
        w->models[v[i].index] = (struct model){0};
    }
}

/* Engines do not stand still for a load: one takes a little of the freed memory, or caches used pages. */
static void meanwhile(struct world *w)
{
    struct model *m = &w->models[rng_below(&w->rng, MODELS)];
    uint64_t room = w->ceiling - limit_of(held(w), w->ceiling);
    if (!m->loaded || !m->busy)
        return;
    if (rng_below(&w->rng, 2))
        m->used += limit_of(room, rng_below(&w->rng, 10));
    else if (m->used > 0) {
        m->used--;
        m->cached++;
    }
}

/* ---- invariants ---- */

static uint64_t used_by_all(const struct world *w)
{
    uint64_t sum = 0;
    for (int i = 0; i < MODELS; i++)
        sum += w->models[i].loaded ? w->models[i].used : 0;
    return sum;
}

static void check_order(struct world *w, const struct reclaim_figures *l, enum reclaim_step step)
{
    if (step == RECLAIM_CACHED || step == RECLAIM_IDLE)
        assert_true(l->free_bytes == 0 || w->furthest >= RECLAIM_FREE);
    if (step == RECLAIM_IDLE)
        assert_true(l->cached_bytes == 0 || w->furthest == RECLAIM_IDLE);
    if (step != RECLAIM_FITS && step != RECLAIM_NONE) {
        assert_true(step >= w->furthest);
        w->furthest = step;
    }
}

/* Tries to load a model of `bytes` bytes. True: it is loaded. */
static bool load(struct world *w, uint32_t index, uint64_t bytes, bool others_move)
{
    struct reclaim_order room = {0};
    struct asked asked = {0};
    w->furthest = RECLAIM_FITS;
    struct world before = *w;
    for (uint32_t steps = 0;; steps++) {
        struct reclaim_figures l = look(w, &asked, bytes);
        enum reclaim_step step = reclaim_order_next(&room, &l);
        assert_true(steps <= RECLAIM_STEPS_MAX + 1);
        check_order(w, &l, step);
        uint64_t used = used_by_all(w);
        if (step == RECLAIM_FITS) {
            w->models[index] =
                (struct model){.loaded = true, .weights = bytes, .reload_ns = 1 + rng_below(&w->rng, 100)};
            return true;
        }
        if (step == RECLAIM_NONE) {
            /* A load that was hopeless from the start has changed nothing. */
            if (steps == 0)
                assert_memory_equal(before.models, w->models, sizeof(w->models));
            else if (!others_move)
                for (int i = 0; i < MODELS; i++)
                    assert_true(w->models[i].cached == 0 || w->models[i].stuck);
            return false;
        }
        if (step == RECLAIM_FREE)
            take_free(w, l.needed_bytes);
        else if (step == RECLAIM_CACHED)
            take_cached(w, &asked, l.needed_bytes);
        else
            take_idle(w, &asked, bytes);
        /* Only idle models' are gone, and those have none in use. */
        assert_int_equal(used_by_all(w), used);
        if (others_move)
            meanwhile(w);
        assert_true(held(w) <= w->ceiling);
    }
}

static void live(struct world *w)
{
    struct model *m = &w->models[rng_below(&w->rng, MODELS)];
    uint64_t room = w->ceiling - limit_of(held(w), w->ceiling);
    if (!m->loaded)
        return;
    m->pinned = rng_below(&w->rng, 5) == 0;
    m->leased = rng_below(&w->rng, 5) == 0;
    m->stuck = rng_below(&w->rng, 10) == 0;
    m->idle_ns = rng_below(&w->rng, 1000);
    m->busy = rng_below(&w->rng, 2);
    if (m->busy) {
        m->used += limit_of(room, rng_below(&w->rng, 200));
    } else {
        uint64_t kept = rng_below(&w->rng, m->used + 1);
        m->cached += kept;
        m->free += m->used - kept;
        m->used = 0;
    }
}

PROPERTY(room_is_made_in_order_and_nobody_who_runs_pays, seed)
{
    struct world w = {.rng = {seed, 0}, .ceiling = 2000};
    uint32_t loads = 0;
    for (int i = 0; i < 400; i++) {
        uint32_t index = (uint32_t)rng_below(&w.rng, MODELS);
        if (rng_below(&w.rng, 3)) {
            live(&w);
        } else if (!w.models[index].loaded) {
            uint64_t bytes = 1 + rng_below(&w.rng, rng_below(&w.rng, 10) ? 900 : 2500);
            loads += load(&w, index, bytes, rng_below(&w.rng, 2));
        }
        assert_true(held(&w) <= w.ceiling);
    }
    assert_true(loads > 0);
}

TEST(an_idle_model_stays_when_caches_suffice)
{
    struct world w = {.rng = {1, 0}, .ceiling = 1000};
    w.models[0] = (struct model){.loaded = true, .weights = 300, .cached = 200, .free = 50, .reload_ns = 1};
    w.models[1] = (struct model){.loaded = true, .busy = true, .weights = 100, .used = 100, .cached = 100};
    assert_true(load(&w, 2, 340, false));
    assert_true(w.models[0].loaded && w.models[0].free == 0 && w.furthest == RECLAIM_CACHED);
    assert_true(load(&w, 3, 350, false));
    assert_true(!w.models[0].loaded && w.models[1].loaded && w.models[1].used == 100);
}

TEST(a_limit_of_its_own_is_nobody_elses_matter)
{
    struct reclaim_order room = {0};
    struct reclaim_figures l = {
        .own_limit = true, .free_bytes = 100, .cached_bytes = 100, .reach_bytes = 200, .idle_bytes = 100};
    assert_int_equal(reclaim_order_next(&room, &l), RECLAIM_NONE);
    l.needed_bytes = 10;
    assert_int_equal(reclaim_order_next(&(struct reclaim_order){0}, &l), RECLAIM_NONE);
}

TEST_MAIN()
