/* The table of settings: every row fits its field, defaults are values of their rows, and a text is put where
 * its reader finds it. */
#include "test.h"

#include "base/check.h"
#include "base/clock.h"
#include "host/settings.h"
#include "host/settings_table.h"
#include "memory/plan.h"
#include "model/model.h"
#include "registry/speculation.h"

#include <errno.h>
#include <math.h>
#include <string.h>

static bool is_number(const struct setting_row *row)
{
    return row->kind == SETTING_COUNT || row->kind == SETTING_SECONDS || row->kind == SETTING_MS ||
           row->kind == SETTING_BYTES;
}

static size_t size_of(enum setting_kind kind, size_t size)
{
    switch (kind) {
    case SETTING_TEXT:
        return sizeof(char *);
    case SETTING_LIST:
        return (SETTINGS_KEYS_MAX + 1) * sizeof(char *);
    case SETTING_REAL:
        return sizeof(double);
    case SETTING_FLAG:
        return sizeof(bool);
    default:
        return size;
    }
}

TEST(every_field_is_of_its_rows_kind)
{
    for (size_t i = 0; i < settings_table_count; i++) {
        const struct setting_row *row = &settings_table[i];
        assert_true(row->offset + row->size <= sizeof(struct settings));
        assert_int_equal(row->size, size_of(row->kind, row->size));
    }
}

/* Their text is sealed and overwritten while the command runs, which only lists of keys bear. */
TEST(only_lists_of_keys_are_secret)
{
    uint32_t count = 0;
    for (size_t i = 0; i < settings_table_count; i++) {
        const struct setting_row *row = &settings_table[i];
        if (!(row->commands & SECRET))
            continue;
        assert_int_equal(row->kind, SETTING_LIST);
        assert_true(row->offset >= offsetof(struct settings, keys) &&
                    row->offset < offsetof(struct settings, keys) + sizeof(((struct settings *)0)->keys));
        assert_false(row->commands & UNSHOWN);
        count++;
    }
    assert_int_equal(count, 3);
}

TEST(a_file_with_a_key_or_a_password_is_private)
{
    static const struct {
        const char *name, *text;
        bool secret;
    } rows[] = {{"api-key", "sk-1", true},
                {"shared-cache", "redis://:pw@h", true},
                {"shared-cache", "redis://h:1", false},
                {"shared-cache", "file:///mnt/kv", false},
                {"host", "a@b", false}};
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        const struct setting_row *row = settings_row_of(COMMAND_SERVE, rows[i].name, strlen(rows[i].name));
        assert_non_null(row);
        assert_int_equal(settings_has_secret(row, rows[i].text), rows[i].secret);
    }
}

/* The largest value of a row is in its field what it was as a text. */
TEST(every_number_holds_its_bounds)
{
    static struct settings s;
    struct err e;
    char text[64];
    for (size_t i = 0; i < settings_table_count; i++) {
        const struct setting_row *row = &settings_table[i];
        if (!is_number(row))
            continue;
        assert_true(row->min >= 0 && row->max >= row->min);
        snprintf(text, sizeof(text), "%.0f", row->max);
        assert_int_equal(settings_set(row, text, &s, &e), 0);
        assert_true((double)settings_number(row, &s) == row->max);
        snprintf(text, sizeof(text), "%.0f", 2 * row->max + 1);
        assert_int_equal(settings_set(row, text, &s, &e), -EINVAL);
    }
}

TEST(a_default_is_a_value_of_its_row)
{
    static struct settings s, other;
    struct err e;
    assert_int_equal(settings_defaults(&s, &e), 0);
    for (size_t i = 0; i < settings_table_count; i++) {
        const struct setting_row *row = &settings_table[i];
        if (!row->otherwise || strcmp(row->otherwise, SETTINGS_NOT_GIVEN) == 0)
            continue;
        assert_int_equal(settings_set(row, row->otherwise, &other, &e), 0);
        if (is_number(row))
            assert_int_equal(settings_number(row, &s), settings_number(row, &other));
    }
    assert_int_equal(s.http.port, 8080);
    assert_int_equal(s.api.live.keepalive_s, 10);
    assert_int_equal(s.registry.drain_ns, 10 * NS_PER_S);
    assert_int_equal(s.model.engine.step_ns, 100 * NS_PER_MS);
    assert_true(s.model.engine.prefix_cache_bytes == PLAN_ALL &&
                s.model.engine.image_cache_bytes == PLAN_ALL);
    assert_int_equal(s.model.speculation.head_drafts, SPECULATION_DRAFTS_ANY);
    assert_true(s.model.speculation.draft_vocab == MODEL_DRAFT_VOCAB_AUTO);
}

static const struct setting_row *row_of(unsigned of, const char *name)
{
    const struct setting_row *row = settings_row_of(of, name, strlen(name));
    assert_non_null(row);
    return row;
}

TEST(a_value_that_is_not_given_cannot_be_given)
{
    static struct settings s;
    struct err e;
    assert_int_equal(settings_set(row_of(COMMAND_SERVE, "mtp"), SETTINGS_NOT_GIVEN, &s, &e), -EINVAL);
    assert_int_equal(settings_set(row_of(COMMAND_SERVE, "host-cache"), SETTINGS_NOT_GIVEN, &s, &e), -EINVAL);
}

TEST(a_section_changes_the_settings_of_its_model_only)
{
    struct settings s, own;
    struct err e;
    assert_int_equal(settings_defaults(&s, &e), 0);
    assert_int_equal(settings_set(row_of(COMMAND_SERVE, "max-tokens-default"), "100", &s, &e), 0);
    assert_int_equal(settings_set(row_of(COMMAND_SERVE, "ttl"), "5", &s, &e), 0);
    assert_int_equal(settings_set_section(&s, "a", row_of(SECTION, "ttl"), "7", &e), 0);
    assert_int_equal(settings_set_section(&s, "a", row_of(SECTION, "top-k"), "3", &e), 0);
    assert_int_equal(settings_of_model(&s, "a", &own, &e), 0);
    assert_int_equal(own.model.ttl_ns, 7 * NS_PER_S);
    assert_int_equal(own.model.sampling.top_k, 3);
    assert_int_equal(own.api.live.max_tokens_default, 0);
    assert_int_equal(settings_of_model(&s, NULL, &own, &e), 0);
    assert_int_equal(own.model.ttl_ns, 5 * NS_PER_S);
    assert_int_equal(own.model.sampling.top_k, 0);
    assert_int_equal(s.api.live.max_tokens_default, 100);
    assert_string_equal(settings_section(&s, 0), "a");
    assert_null(settings_section(&s, 1));
    settings_done(&s);
}

TEST(planned_settings_may_shrink_and_not_grow)
{
    static struct settings started, now;
    struct err e;
    assert_int_equal(settings_defaults(&started, &e), 0);
    now = started;
    now.model.engine.max_queue++;
    now.api.live.requests_max--;
    now.api.live.stuck_s++;
    assert_true(settings_exceed("max-queue", &now, &started));
    assert_false(settings_exceed("max-requests", &now, &started));
    assert_false(settings_exceed("stuck", &now, &started));
    assert_false(settings_exceed("none", &now, &started));
}

TEST_MAIN()
