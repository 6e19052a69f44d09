/* Placement: the rules of --place, what they change, and the rows of the table. */
#include "test.h"

#include "memory/placement.h"

#include <errno.h>
#include <string.h>

static const char *const names[] = {"cpu", "cuda:0", "cuda:1"};
static const struct placement_names places = {names, 3};

/* Eight layers; the first one has no experts. */
static struct placement_sizes sizes(void)
{
    struct placement_sizes s = {.layers = 8, .rest_bytes = 1000};
    for (uint32_t i = 0; i < 8; i++) {
        s.layer_bytes[i] = 10 + i;
        s.experts_bytes[i] = i > 0 ? 100 * i : 0;
    }
    return s;
}

static int place(const char *text, struct placement *p, struct err *e)
{
    const struct placement_sizes s = sizes();
    struct placement_wish w;
    placement_all(&s, 1, p);
    int r = placement_parse(text, &w, e);
    return r < 0 ? r : placement_apply(&w, &places, p, e);
}

static void check(const char *text, const char *wanted)
{
    struct placement p;
    struct err e = {{0}};
    char line[PLACEMENT_TEXT_BYTES];
    assert_int_equal(place(text, &p, &e), 0);
    assert_string_equal(placement_text(&p, &places, line, sizeof(line)), wanted);
}

TEST(rules_change_their_parts_and_the_later_one_holds)
{
    check("", "cuda:0: the rest and layers 0-7 and experts 1-7");
    check("experts=cpu", "cuda:0: the rest and layers 0-7, cpu: experts 1-7");
    check(" experts 4-7 = cpu ", "cuda:0: the rest and layers 0-7 and experts 1-3, cpu: experts 4-7");
    check("experts=cpu,experts 2=cuda:0",
          "cuda:0: the rest and layers 0-7, cpu: experts 1, cuda:0: experts 2, cpu: experts 3-7");
    check("rest=cpu, layers 0-3=cuda:1",
          "cpu: the rest, cuda:1: layers 0-3, cuda:0: layers 4-7, cuda:1: experts 1-3, cuda:0: experts 4-7");
    check("experts=cpu, layers 0-3=cuda:1",
          "cuda:0: the rest, cuda:1: layers 0-3, cuda:0: layers 4-7, cpu: experts 1-7");
}

static void refused(const char *text, const char *why)
{
    struct placement p;
    struct err e = {{0}};
    assert_int_equal(place(text, &p, &e), -EINVAL);
    if (!strstr(e.text, why))
        fail_msg("%s: \"%s\" lacks \"%s\"", text, e.text, why);
}

TEST(wrong_rules_are_refused_in_words)
{
    refused("experts", "PART=PLACE is expected");
    refused("experts=cpu,", "PART=PLACE is expected");
    refused("heads=cpu", "PART=PLACE is expected");
    refused("=cpu", "PART=PLACE is expected");
    refused("experts=", "the place cpu, cuda:N or fake:N");
    refused("experts=gpu", "the place cpu, cuda:N or fake:N");
    refused("experts=cuda:", "the place cpu, cuda:N or fake:N");
    refused("experts=cuda:-1", "the place cpu, cuda:N or fake:N");
    refused("experts=cuda:999999999999999999999", "the place cpu, cuda:N or fake:N");
    refused("rest 3=cpu", "a range of layers");
    refused("experts 3-=cpu", "a range of layers");
    refused("experts -3=cpu", "a range of layers");
    refused("experts 1-2-3=cpu", "a range of layers");
    refused("layers 1024=cpu", "a range of layers");
    refused("layers 7-3=cuda:0", "ends before it begins");
    refused("layers 0-8=cuda:0", "the model has layers 0 to 7");
    refused("experts 9=cpu", "the model has layers 0 to 7");
    refused("experts 0=cpu", "there the model has no experts");
    refused("experts=cuda:2", "the process computes on cpu, cuda:0, cuda:1");
}

TEST(a_long_text_and_many_rules_are_refused)
{
    char text[4096] = "";
    memset(text, 'x', sizeof(text) - 1);
    refused(text, "PART=PLACE is expected");
    text[0] = 0;
    for (uint32_t i = 0; i <= PLACEMENT_RULES_MAX; i++)
        strcat(text, i ? ",experts=cpu" : "experts=cpu");
    refused(text, "more than 16 rules");
}

static void not_computed(const char *text, const char *why)
{
    struct placement p;
    struct err e = {{0}};
    assert_int_equal(place(text, &p, &e), 0);
    assert_int_equal(placement_check(&p, 1, &places, &e), -ENOTSUP);
    if (!strstr(e.text, why))
        fail_msg("%s: \"%s\" lacks \"%s\"", text, e.text, why);
}

TEST(what_is_not_computed_is_named)
{
    struct placement p;
    assert_int_equal(place("experts=cpu", &p, NULL), 0);
    assert_int_equal(placement_check(&p, 1, &places, NULL), 0);
    not_computed("layers 2-5=cpu", "layers 2-5 of a model on cuda:0 cannot be computed on cpu");
    not_computed("experts 3=cuda:1", "experts 3 of a model on cuda:0 cannot be computed on cuda:1");
    not_computed("rest=cpu", "the rest of a model on cuda:0 cannot be computed on cpu");
    assert_int_equal(place("layers 0-3=cuda:1", &p, NULL), 0);
    assert_int_equal(placement_check(&p, 1, &places, NULL), 0);
}

/* Every byte is in one row. */
TEST(rows_have_all_bytes_once)
{
    const struct placement_sizes s = sizes();
    const char *const texts[] = {"", "experts=cpu", "experts 3=cpu, layers 2-4=cuda:1, rest=cpu"};
    uint64_t all = s.rest_bytes;
    for (uint32_t i = 0; i < s.layers; i++)
        all += s.layer_bytes[i] + s.experts_bytes[i];
    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        struct placement p;
        struct placement_walk w = {.started = false};
        uint64_t sum = 0;
        assert_int_equal(place(texts[i], &p, NULL), 0);
        while (placement_next(&p, &s, &w))
            sum += w.row.bytes;
        assert_int_equal(sum, all);
    }
}

TEST(experts_may_be_apart_from_their_layer)
{
    struct placement p = {.layers = 0};
    assert_false(placement_any_apart(&p));
    assert_int_equal(place("experts 2-3=cpu", &p, NULL), 0);
    assert_true(placement_any_apart(&p));
    for (uint32_t i = 0; i < 10; i++)
        assert_int_equal(placement_is_apart(&p, i), i == 2 || i == 3);
    placement_experts(&p, 1);
    assert_false(placement_any_apart(&p));
}

TEST_MAIN()
