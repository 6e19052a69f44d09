/* The tables of types: what a lookup finds, and docs/api.md, which has the same tables. */
#include "test.h"

#include "api/request/known_types.h"
#include "base/buf.h"
#include "base/check.h"
#include "base/files/small_file.h"
#include "base/slice.h"

struct buf;

static const struct known_type *find(const struct type_table *t, const char *type)
{
    const struct known_type *row = known_type_find(t, type);
    assert_non_null(row);
    return row;
}

TEST(a_star_stands_for_any_text)
{
    assert_int_equal(find(&messages_user_types, "text")->kind, TYPE_TEXT);
    assert_int_equal(find(&messages_user_types, "texts")->fate, TYPE_AS_TEXT);
    assert_int_equal(find(&messages_user_types, "mcp_tool_result")->fate, TYPE_IGNORED);
    assert_int_equal(find(&messages_user_types, "tool_result")->kind, TYPE_RESULT);
    assert_int_equal(find(&messages_user_types, "")->fate, TYPE_AS_TEXT);
    assert_int_equal(find(&messages_tool_types, "computer_toolset_20260801")->kind, TYPE_TOOLSET);
    assert_int_equal(find(&messages_tool_types, "computer_20250124")->kind, TYPE_CLIENT_TOOL);
    assert_int_equal(find(&messages_tool_types, "web_search_20260318")->fate, TYPE_REFUSED);
    assert_int_equal(find(&messages_tool_types, "web_search")->fate, TYPE_IGNORED);
    assert_int_equal(find(&messages_beta_types, "prompt-caching-2024-07-31")->fate, TYPE_CONVERTED);
    assert_int_equal(find(&messages_beta_types, "prompt-caching-evict-2026-05-12")->fate, TYPE_IGNORED);
    assert_int_equal(find(&responses_item_types, "invented")->fate, TYPE_IGNORED);
}

TEST(a_table_ends_with_any_type_and_has_no_row_that_is_never_found)
{
    for (size_t t = 0; t < KNOWN_TYPE_TABLES; t++) {
        const struct type_table *all = known_type_tables[t];
        assert_string_equal(all->rows[all->count - 1].name, "*");
        for (size_t i = 0; i < all->count; i++) {
            assert_true(all->rows[i].say && all->rows[i].say[0]);
            assert_ptr_equal(find(all, all->rows[i].name), &all->rows[i]);
            assert_true((all->rows[i].fate == TYPE_CONVERTED) == (all->rows[i].kind != TYPE_OTHER));
        }
    }
}

TEST(a_part_that_is_left_out_says_so_in_whole_characters)
{
    static const char even[] = "ääääääääääääääääääääääääääääääääääääääää",
                      odd[] = "xääääääääääääääääääääääääääääääääääääääää";
    json_t *part = json_pack("{s:s}", "text", "words"), *bare = json_object();
    json_t *text = known_type_text(part, "new"), *line = known_type_text(bare, "new"),
           *cut = known_type_text(bare, even), *off = known_type_text(bare, odd);
    assert_string_equal(json_string_value(text), "words");
    assert_string_equal(json_string_value(line), "[A part of type \"new\" was left out here.]");
    assert_non_null(cut);
    assert_non_null(off);
    json_decref(off);
    json_decref(cut);
    json_decref(line);
    json_decref(text);
    json_decref(bare);
    json_decref(part);
}

/* ---- docs/api.md ---- */

/* Neighbours of one fate share a row of the document. */
static bool is_like(const struct known_type *a, const struct known_type *b)
{
    return a->fate == b->fate && strcmp(a->say, b->say) == 0 && strcmp(b->name, "*") != 0;
}

static size_t write_row(const struct known_type *row, size_t left, struct buf *b)
{
    static const char *const says[] = {[TYPE_CONVERTED] = "",
                                       [TYPE_AS_TEXT] = "named in `x-ignored-fields`: ",
                                       [TYPE_IGNORED] = "left out, named in `x-ignored-fields`: ",
                                       [TYPE_REFUSED] = "refused: "};
    bool any = strcmp(row->name, "*") == 0;
    size_t ret = 1;
    buf_printf(b, any ? "| others" : "| `%s`", row->name);
    for (; ret < left && is_like(row, &row[ret]); ret++)
        buf_printf(b, ", `%s`", row[ret].name);
    buf_printf(b, " | %s%s |\n", says[row->fate], row->say);
    return ret;
}

static void write_table(const struct type_table *t, struct buf *b)
{
    buf_printf(b, "| %s | %s |\n|---|---|\n", t->title, t->says);
    for (size_t i = 0; i < t->count;)
        i += write_row(&t->rows[i], t->count - i, b);
    buf_putc(b, 0);
    assert_int_equal(b->error, 0);
}

/* A failure prints the table that belongs into the document. */
TEST(the_document_has_the_tables)
{
    struct small_file doc = {0};
    struct err e;
    assert_int_equal(small_file_read(PLATEAU_SOURCE_DIR "/docs/api.md", 1 << 20, &doc, &e), 0);
    struct slice all = {doc.bytes, doc.len};
    for (size_t t = 0; t < KNOWN_TYPE_TABLES; t++) {
        struct buf want;
        buf_init(&want, 8192, NULL);
        write_table(known_type_tables[t], &want);
        struct slice text = {want.ptr, want.len - 1};
        bool found = slice_find(all, text, 0) != SIZE_MAX;
        if (!found)
            fprintf(stderr, "docs/api.md does not have:\n%s", want.ptr);
        assert_true(found);
        buf_done(&want);
    }
    small_file_done(&doc);
}

TEST_MAIN()
