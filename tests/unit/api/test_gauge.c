/* The tables of numbers: their two forms, and docs/metrics.md, which lists them. */
#include "test.h"

#include "api/report/gauge.h"
#include "api/report/metrics.h"
#include "api/report/report.h"
#include "base/check.h"
#include "base/json/json_out.h"
#include "memory/ledger.h"

/* ---- the two forms ---- */

struct numbers {
    uint32_t small, items[3];
    uint64_t big, ns;
    int64_t below;
    double part;
    bool flag;
};

static const char *item_name(uint32_t item)
{
    return item == 1 ? NULL : item == 0 ? "zero" : "two";
}

#define OF(field) GAUGE_OF(struct numbers, field)

static const struct gauge rows[] = {
    {OF(big), MEMBER("a", 2, "big"), COUNTER("big_total", "Big.")},
    {OF(small), MEMBER("a", 1, "small"), GAUGE("of", "Parts."), .labels = "part=\"small\""},
    {OF(big), GAUGE("of", "Parts."), .labels = "part=\"big\""},
    {OF(ns), .unit = GAUGE_MS, MEMBER("a", 3, "ms"), GAUGE("time_seconds", "Time.")},
    {OF(ns), .unit = GAUGE_SECONDS, MEMBER("b", 1, "s")},
    {OF(flag), MEMBER("a", 4, "flag"), GAUGE("flag", "Flag."), .scope = GAUGE_ALL_OWN},
    {OF(part), .unit = GAUGE_PERCENT, MEMBER("a", 5, "percent"), GAUGE("ratio", "Ratio.")},
    {OF(part), GAUGE("own", "Own."), .scope = GAUGE_OWN},
    {OF(below), GAUGE("below", "Below.")},
    {GAUGE_ITEMS(struct numbers, items, GAUGE_U32, 3, "item", item_name), GAUGE("items", "Items.")},
    {GAUGE_ITEMS(struct numbers, items, GAUGE_U32, 2, "item", NULL), GAUGE("numbered", "Items.")},
};
static const struct gauge_table table = {.rows = rows, .count = COUNT_OF(rows)};

static const struct numbers sample = {.small = 7,
                                      .big = 1ull << 60,
                                      .ns = 1500000,
                                      .below = -3,
                                      .part = 12.5,
                                      .flag = true,
                                      .items = {4, 5, 6}};

static void assert_text(struct buf *b, const char *want)
{
    buf_putc(b, 0);
    assert_int_equal(b->error, 0);
    assert_string_equal(b->ptr, want);
    buf_done(b);
}

TEST(members_come_in_order_of_their_places)
{
    struct buf b;
    buf_init(&b, 4096, NULL);
    struct json_out j = json_out_object(&b);
    gauges_put_object(&table, "a", &sample, &j);
    gauges_put_members(&table, "b", &sample, &j);
    gauges_put_members(&table, "none", &sample, &j);
    json_end(&j);
    assert_text(&b, "{\"a\":{\"small\":7,\"big\":1152921504606846976,\"ms\":1.500,\"flag\":true,"
                    "\"percent\":12.50},\"s\":0.002}");
}

TEST(series_have_one_head_and_the_samples_of_all_models)
{
    struct buf b;
    struct gauge_source models[] = {{"m\"1", &sample}, {"n", &sample}};
    buf_init(&b, 4096, NULL);
    gauges_write_series(&(struct gauge_table){.rows = rows + 1, .count = 2}, models, 2, false, &b);
    assert_text(&b, "# HELP of Parts.\n# TYPE of gauge\n"
                    "of{model_name=\"m\\\"1\",part=\"small\"} 7\n"
                    "of{model_name=\"m\\\"1\",part=\"big\"} 1152921504606846976\n"
                    "of{model_name=\"n\",part=\"small\"} 7\n"
                    "of{model_name=\"n\",part=\"big\"} 1152921504606846976\n");
}

TEST(samples_have_seconds_ratios_and_items)
{
    struct buf b;
    buf_init(&b, 4096, NULL);
    gauges_write_series(&(struct gauge_table){.rows = rows + 3, .count = COUNT_OF(rows) - 3},
                        &(struct gauge_source){NULL, &sample}, 1, false, &b);
    assert_text(&b, "# HELP time_seconds Time.\n# TYPE time_seconds gauge\ntime_seconds 0.0015\n"
                    "# HELP flag Flag.\n# TYPE flag gauge\nflag 1\n"
                    "# HELP ratio Ratio.\n# TYPE ratio gauge\nratio 0.1250\n"
                    "# HELP below Below.\n# TYPE below gauge\nbelow -3\n"
                    "# HELP items Items.\n# TYPE items gauge\nitems{item=\"zero\"} 4\nitems{item=\"two\"} 6\n"
                    "# HELP numbered Items.\n# TYPE numbered gauge\n"
                    "numbered{item=\"0\"} 4\nnumbered{item=\"1\"} 5\n");
}

TEST(a_client_sees_its_own_rows)
{
    struct buf b;
    buf_init(&b, 4096, NULL);
    gauges_write_series(&table, &(struct gauge_source){NULL, &sample}, 1, true, &b);
    assert_text(
        &b, "# HELP flag Flag.\n# TYPE flag gauge\nflag 1\n# HELP own Own.\n# TYPE own gauge\nown 12.5\n");
}

/* ---- the server's tables ---- */

static bool is_same(const char *a, const char *b)
{
    return a && b && strcmp(a, b) == 0;
}

static uint32_t count_members(const struct gauge_table *t, const char *object, uint32_t place)
{
    uint32_t ret = 0;
    for (uint32_t i = 0; i < t->count; i++)
        ret += is_same(t->rows[i].object, object) && (place == 0 || t->rows[i].place == place);
    return ret;
}

TEST(places_of_an_object_have_no_gap_and_no_double)
{
    for (uint32_t t = 0; t < REPORT_TABLES; t++) {
        for (uint32_t i = 0; i < report_tables[t]->count; i++) {
            const struct gauge *g = &report_tables[t]->rows[i];
            assert_true(g->series || g->object);
            uint32_t places = g->object ? count_members(report_tables[t], g->object, 0) : 0;
            for (uint32_t place = 1; place <= places; place++)
                assert_int_equal(count_members(report_tables[t], g->object, place), 1);
        }
    }
}

static uint32_t count_series(const char *series)
{
    uint32_t ret = 0;
    const char *before = NULL;
    for (uint32_t t = 0; t < REPORT_TABLES; t++) {
        for (uint32_t i = 0; i < report_tables[t]->count; i++) {
            const struct gauge *g = &report_tables[t]->rows[i];
            ret += g->scope != GAUGE_OWN && is_same(g->series, series) && !is_same(before, series);
            before = g->series;
        }
    }
    return ret;
}

TEST(a_series_is_in_one_place_and_named_by_its_kind)
{
    for (uint32_t t = 0; t < REPORT_TABLES; t++) {
        for (uint32_t i = 0; i < report_tables[t]->count; i++) {
            const struct gauge *g = &report_tables[t]->rows[i];
            assert_non_null(g->help);
            if (!g->series || g->scope == GAUGE_OWN)
                continue;
            size_t len = strlen(g->series);
            assert_int_equal(count_series(g->series), 1);
            assert_true(is_same(g->kind, "counter") == (len > 6 && is_same(g->series + len - 6, "_total")));
        }
    }
}

/* ---- docs/metrics.md ---- */

static const char *path_of(const char *object)
{
    static const struct {
        const char *object, *path;
    } paths[] = {{"load", "models[]."},
                 {"model", "models[]."},
                 {"speculation", "models[].speculation."},
                 {"cache", "models[].cache."},
                 {"agents", "models[].agents."},
                 {"grammars", "models[].grammars."},
                 {"images", "models[].images."},
                 {"kv", "models[].pools.kv."},
                 {"state", "models[].pools.state."},
                 {"trims", "models[].trims."},
                 {"holders", ""},
                 {"memory_pressure", "memory_pressure."},
                 {"guard", "guard."},
                 {"ssd", "caches.ssd."},
                 {"shared", "caches.shared."},
                 {"media", "media."},
                 {"responses", "responses."},
                 {"conversations", "conversations."},
                 {"kv_events", "kv_events."}};
    for (size_t i = 0; i < COUNT_OF(paths); i++)
        if (strcmp(paths[i].object, object) == 0)
            return paths[i].path;
    fail_msg("%s has no path in this test", object);
    return NULL;
}

/* Rows of one series follow each other and share a row of the page. Returns how many there are from `g`. */
static uint32_t series_rows(const struct gauge *g, uint32_t left)
{
    uint32_t ret = 1;
    while (ret < left && is_same(g[ret].series, g->series))
        ret++;
    return ret;
}

static void write_row(const struct gauge *g, uint32_t count, struct buf *b)
{
    static const char *const scopes[] = {"", " Also of the client itself.", " Of the client itself."};
    const char *labels = g->item_label ? g->item_label : g->labels;
    buf_puts(b, "| ");
    if (g->series)
        buf_printf(b, labels ? "`%s{%s}`" : "`%s`", g->series, labels);
    for (uint32_t i = 1; i < count; i++)
        buf_printf(b, ", `{%s}`", g[i].labels);
    buf_puts(b, g->series ? " | " : "| ");
    for (uint32_t i = 0; i < count; i++) {
        assert_string_equal(g[i].help, g->help);
        if (!g[i].object)
            continue;
        const char *path = i > 0 && is_same(g[i].object, g[i - 1].object) ? "" : path_of(g[i].object);
        buf_printf(b, "%s`%s%s`", i > 0 ? ", " : "", path, g[i].member);
    }
    buf_puts(b, g->object ? " | " : "| ");
    buf_printf(b, "%s | %s%s |\n", g->kind ? g->kind : "", g->help, scopes[g->scope]);
}

static void write_histograms(struct buf *b)
{
    struct metrics m;
    metrics_init(&m);
    buf_puts(b, "\n## Histograms of a model's requests\n\n| series | meaning |\n|---|---|\n");
    for (uint32_t i = 0; i < METRICS_KIND_COUNT; i++)
        buf_printf(b, "| `%s` | %s |\n", m.histograms[i].name, m.histograms[i].help);
}

static void write_docs(struct buf *b)
{
    buf_puts(
        b,
        "# Metrics\n\n"
        "Look up a series of `GET /metrics`, or the member of `GET /api/status` that has the same number.\n"
        "Series of models have the label `model_name` in addition. Times of `/api/status` have their\n"
        "unit in the name. [operations.md](operations.md#monitoring) says what to watch.\n");
    for (uint32_t t = 0; t < REPORT_TABLES; t++) {
        buf_printf(b, "\n## %s\n\n| series | in `/api/status` | kind | meaning |\n|---|---|---|---|\n",
                   report_tables[t]->title);
        for (uint32_t i = 0, count; i < report_tables[t]->count; i += count) {
            const struct gauge *g = &report_tables[t]->rows[i];
            count = series_rows(g, report_tables[t]->count - i);
            write_row(g, count, b);
        }
    }
    write_histograms(b);
    buf_putc(b, 0);
    assert_int_equal(b->error, 0);
}

/* METRICS_DOC=FILE writes the page there. */
TEST(the_page_of_metrics_lists_the_tables)
{
    static char have[1 << 16];
    struct buf want;
    const char *file = getenv("METRICS_DOC");
    buf_init(&want, sizeof(have), NULL);
    write_docs(&want);
    FILE *f = fopen(file ? file : PLATEAU_SOURCE_DIR "/docs/metrics.md", file ? "w" : "r");
    assert_non_null(f);
    if (file)
        assert_true(fputs(want.ptr, f) >= 0);
    else
        assert_true(fread(have, 1, sizeof(have) - 1, f) > 0);
    assert_int_equal(fclose(f), 0);
    if (!file)
        assert_string_equal(have, want.ptr);
    buf_done(&want);
}

TEST(what_an_account_has_itself_is_what_its_children_have_not)
{
    static const struct account_numbers accounts[] = {{.depth = 0, .used = 100},
                                                      {.depth = 1, .used = 60},
                                                      {.depth = 2, .used = 50},
                                                      {.depth = 1, .used = 10},
                                                      {.depth = 1, .used = 70, .class = ACCOUNT_DISK},
                                                      {.depth = 0, .used = 5}};
    static const uint64_t own[] = {30, 10, 50, 10, 70, 5};
    for (uint32_t i = 0; i < COUNT_OF(own); i++)
        assert_int_equal(report_own_used(accounts, COUNT_OF(accounts), i), own[i]);
}

TEST(unaccounted_memory_is_what_no_account_and_no_allocator_has)
{
    struct memory_counts m = {.resident = 1000,
                              .heap = 300,
                              .heap_accounts = 250,
                              .heap_mapped = 100,
                              .mapped = 500,
                              .connections = 40};
    assert_int_equal(report_unaccounted_of(&m).bytes, 100);
    assert_int_equal(report_unaccounted_of(&m).untouched_bytes, 40);
    m.heap_mapped = 210;
    assert_int_equal(report_unaccounted_of(&m).bytes, -10); /* also below untouched_bytes */
    m.heap = 0;
    assert_int_equal(report_unaccounted_of(&m).bytes, 250);
    m.resident = 0;
    assert_int_equal(report_unaccounted_of(&m).bytes, 0);
}

TEST_MAIN()
