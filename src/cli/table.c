/* table.c - keeps all cells until the end, because a column is as wide as its longest text. */
#include "cli/table.h"

#include "base/check.h"
#include "cli/help_lines.h"
#include "cli/output.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define GAP         2
#define FIRST_WIDTH 32 /* width of the first column; where there is less, other columns are left out */
#define LAST_WIDTH  16 /* width of the last column; where there is less, other columns are left out */
#define INDENT      4  /* indent of a last text below its row */

struct layout {
    size_t width; /* width of a line */
    size_t widths[TABLE_COLUMNS_MAX];
    bool shown[TABLE_COLUMNS_MAX];
};

void table_init(struct table *t, const struct table_column *columns, uint32_t column_count)
{
    ASSERT(column_count >= 2 && column_count <= TABLE_COLUMNS_MAX);
    ASSERT(columns[0].leaves == 0 && columns[column_count - 1].leaves == 0);
    *t = (struct table){.columns = columns, .column_count = column_count};
    t->cells = open_memstream(&t->text, &t->bytes);
}

void table_cell(struct table *t, const char *format, ...)
{
    char *text = NULL;
    va_list list;
    va_start(list, format);
    int n = t->cells ? vasprintf(&text, format, list) : -1;
    va_end(list);
    if (n < 0) {
        if (t->cells)
            fclose(t->cells);
        t->cells = NULL;
        return;
    }
    plain_write(t->cells, text);
    fputc(0, t->cells);
    free(text);
    t->cell_count++;
}

/* Characters of UTF-8. */
static size_t width_of(const char *text)
{
    size_t n = 0;
    for (; *text; text++)
        n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}

/* Each column as wide as its longest text. */
static void measure(const struct table *t, struct layout *l)
{
    for (uint32_t i = 0; i < t->column_count; i++) {
        l->widths[i] = width_of(t->columns[i].head);
        l->shown[i] = true;
    }
    const char *at = t->text;
    for (uint32_t i = 0; i < t->cell_count; i++, at += strlen(at) + 1) {
        size_t *width = &l->widths[i % t->column_count];
        *width = MAX_OF(*width, width_of(at));
    }
}

/* The columns between the first and the last one that are shown, with their gaps. */
static size_t width_between(const struct table *t, const struct layout *l)
{
    size_t width = GAP;
    for (uint32_t i = 1; i + 1 < t->column_count; i++)
        width += l->shown[i] ? l->widths[i] + GAP : 0;
    return width;
}

/* Leaves columns out until the others fit, or no further one may go; then the first column gets the room that
 * is there. */
static void fit(const struct table *t, struct layout *l)
{
    const size_t first = MIN_OF(l->widths[0], (size_t)FIRST_WIDTH);
    const size_t last = MIN_OF(l->widths[t->column_count - 1], (size_t)LAST_WIDTH);
    for (uint8_t leaves = 1; leaves < TABLE_COLUMNS_MAX; leaves++)
        for (uint32_t i = 1; i + 1 < t->column_count && first + width_between(t, l) + last > l->width; i++)
            if (t->columns[i].leaves == leaves)
                l->shown[i] = false;
    const size_t others = width_between(t, l) + last;
    const size_t room = l->width > others ? l->width - others : 0;
    l->widths[0] = MIN_OF(l->widths[0], MAX_OF(room, (size_t)LAST_WIDTH));
}

/* Writes the row's last text, `pad` blanks after `column`, and ends the row. */
static void print_last(const struct layout *l, const char *text, size_t column, size_t pad, FILE *f)
{
    const size_t len = width_of(text), at = column + pad, room = l->width > at ? l->width - at : 0;
    const bool below = len > 2 * room;
    if (len > 0) {
        fprintf(f, "%s%*s", below ? "\n" : "", below ? INDENT : (int)pad, "");
        plain_words(f, text, below ? INDENT : at, l->width);
    }
    fputc('\n', f);
}

/* The cells of one row begin at `cells`. Returns the next row's. */
static const char *print_row(const struct table *t, const struct layout *l, const char *cells, FILE *f)
{
    size_t column = 0, pad = 0; /* pad: blanks before the next text */
    for (uint32_t i = 0; i < t->column_count; i++, cells += strlen(cells) + 1) {
        if (!l->shown[i])
            continue;
        if (i + 1 == t->column_count)
            break;
        const size_t len = width_of(cells), free = l->widths[i] > len ? l->widths[i] - len : 0;
        const size_t before = t->columns[i].right ? pad + free : pad;
        fprintf(f, "%*s%s", (int)before, "", cells);
        pad = GAP + (t->columns[i].right ? 0 : free);
        column += before + len;
        if (len > l->widths[i]) { /* the first one: it has a line of its own */
            fputc('\n', f);
            column = 0;
            pad = l->widths[i] + GAP;
        }
    }
    print_last(l, cells, column, pad, f);
    return cells + strlen(cells) + 1;
}

static void print_table(const struct table *t, FILE *f)
{
    struct layout l = {.width = terminal_is(f) ? terminal_columns(f) : SIZE_MAX / 4};
    char heads[1024];
    size_t at = 0;
    measure(t, &l);
    fit(t, &l);
    for (uint32_t i = 0; i < t->column_count; i++) {
        const size_t len = strlen(t->columns[i].head) + 1;
        ASSERT(at + len <= sizeof(heads));
        memcpy(heads + at, t->columns[i].head, len);
        at += len;
    }
    print_row(t, &l, heads, f);
    const char *cells = t->text;
    for (uint32_t i = 0; i < t->cell_count; i += t->column_count)
        cells = print_row(t, &l, cells, f);
}

int table_end(struct table *t, FILE *f)
{
    ASSERT(t->cell_count % t->column_count == 0 || !t->cells);
    const bool whole = t->cells && fclose(t->cells) == 0;
    if (whole && t->cell_count > 0)
        print_table(t, f);
    free(t->text);
    t->text = NULL;
    return whole ? 0 : -ENOMEM;
}
