/* The attention list: each condition appears after its time, and leaves with its cause. */
#include "test.h"
#include "api/report/report_attention.h"
#include "base/check.h"
#include "base/clock.h"

#include <math.h>

#define START (1000 * NS_PER_S)

static struct attention_facts calm(void)
{
    return (struct attention_facts){.first_token_s = NAN};
}

/* Whether the row called `id` is on the list; no other may be. */
static bool has(const struct attention *a, const char *id)
{
    struct attention_item item;
    bool found = false;
    for (uint32_t i = 0; i < ATTENTION_ROWS; i++) {
        if (!attention_at(a, i, &item))
            continue;
        assert_string_equal(item.id, id);
        assert_true(item.what[0] && item.remedy[0]);
        found = true;
    }
    return found;
}

/* A second a step. */
static void hold(struct attention *a, uint64_t *now_ns, uint32_t seconds, const struct attention_facts *f)
{
    for (uint32_t i = 0; i < seconds; i++, *now_ns += NS_PER_S)
        attention_update(a, *now_ns, f);
}

TEST(a_calm_server_has_an_empty_list)
{
    struct attention a = {0};
    struct attention_facts f = calm();
    uint64_t now_ns = START;
    hold(&a, &now_ns, 900, &f);
    assert_false(has(&a, ""));
}

static const struct {
    const char *id;
    struct attention_facts facts;
    uint32_t after_s;
} states[] = {
    {"engine_stuck", {.stuck = true, .first_token_s = NAN}, 0},
    {"memory_unaccounted", {.unaccounted_bytes = 33554433, .first_token_s = NAN}, 300},
    {"memory_unaccounted", {.unaccounted_bytes = -33554433, .first_token_s = NAN}, 300},
    {"memory_unaccounted",
     {.unaccounted_bytes = -33654433, .untouched_bytes = 100000, .first_token_s = NAN},
     300},
    {"orphans", {.orphans = 1, .first_token_s = NAN}, 0},
    {"pending_trim", {.pending_trim_bytes = 1, .first_token_s = NAN}, 60},
    {"memory_pressure", {.stage = 1, .first_token_s = NAN}, 60},
    {"ssd", {.ssd_off = true, .first_token_s = NAN}, 0},
    {"prep_waiting", {.prep_waiting = 11, .first_token_s = NAN}, 60},
    {"media_waiting", {.media_waiting = 1, .first_token_s = NAN}, 60},
    {"queue_waiting", {.waiting = 1, .first_token_s = NAN}, 600},
    {"first_token_late", {.first_token_s = 5.1}, 0},
};

TEST(a_state_is_listed_after_its_time_and_leaves_at_once)
{
    for (size_t i = 0; i < COUNT_OF(states); i++) {
        struct attention a = {0};
        struct attention_facts f = calm();
        uint64_t now_ns = START;
        hold(&a, &now_ns, states[i].after_s, &states[i].facts);
        assert_false(has(&a, states[i].id));
        hold(&a, &now_ns, 1, &states[i].facts);
        assert_true(has(&a, states[i].id));
        hold(&a, &now_ns, 1, &f);
        assert_false(has(&a, states[i].id));
        hold(&a, &now_ns, 1, &states[i].facts);
        assert_int_equal(has(&a, states[i].id), states[i].after_s == 0);
    }
}

TEST(hard_pressure_is_pressure_too)
{
    struct attention a = {0};
    struct attention_item item;
    struct attention_facts f = calm();
    uint64_t now_ns = START;
    uint32_t listed = 0;
    f.stage = 3;
    hold(&a, &now_ns, 61, &f);
    for (uint32_t i = 0; i < ATTENTION_ROWS; i++)
        listed += attention_at(&a, i, &item);
    assert_int_equal(listed, 2);
}

static const struct {
    const char *id;
    enum attention_counter counter;
    uint64_t least; /* a rise of so much in five minutes is listed, one less is not */
} counters[] = {
    {"loads_refused", ATTENTION_LOADS_REFUSED, 1},
    {"step_errors", ATTENTION_STEP_ERRORS, 1},
    {"overload", ATTENTION_REFUSED_429, 31},
    {"keys_tried", ATTENTION_REFUSED_401, 301},
    {"ssd", ATTENTION_SSD_ERRORS, 1},
};

TEST(a_counter_is_listed_while_it_rose_within_five_minutes)
{
    for (size_t i = 0; i < COUNT_OF(counters); i++) {
        struct attention a = {0};
        struct attention_facts f = calm();
        uint64_t now_ns = START;
        f.lacks_memory = "a-model";
        f.counters[counters[i].counter] = 7; /* from before the start */
        hold(&a, &now_ns, 20, &f);
        f.counters[counters[i].counter] += counters[i].least - 1;
        hold(&a, &now_ns, 2, &f);
        assert_false(has(&a, counters[i].id));
        f.counters[counters[i].counter] += 1;
        hold(&a, &now_ns, 1, &f);
        assert_true(has(&a, counters[i].id));
        hold(&a, &now_ns, 250, &f);
        assert_true(has(&a, counters[i].id));
        hold(&a, &now_ns, 80, &f);
        assert_false(has(&a, counters[i].id));
        /* The model is unloaded, and with it its counters. */
        f.counters[counters[i].counter] = 0;
        hold(&a, &now_ns, 400, &f);
        assert_false(has(&a, counters[i].id));
    }
}

TEST(a_refused_load_names_its_model_until_that_is_settled)
{
    struct attention a = {0};
    struct attention_facts f = calm();
    struct attention_item item;
    uint64_t now_ns = START;
    hold(&a, &now_ns, 20, &f);
    f.counters[ATTENTION_LOADS_REFUSED]++;
    f.lacks_memory = "a-model";
    hold(&a, &now_ns, 2, &f);
    assert_true(has(&a, "loads_refused"));
    for (uint32_t i = 0; i < ATTENTION_ROWS; i++)
        if (attention_at(&a, i, &item))
            assert_string_equal(item.model, "a-model");
    f.lacks_memory = NULL;
    hold(&a, &now_ns, 1, &f);
    assert_false(has(&a, "loads_refused"));
}

TEST_MAIN()
