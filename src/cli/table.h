/* table.h - rows of texts in columns that are as wide as their longest text. Elsewhere than on a terminal a
 * row is one line. A terminal that is too narrow shows fewer columns, and long texts have lines of their own.
 * Main thread. */
#ifndef PLATEAU_CLI_TABLE_H
#define PLATEAU_CLI_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define TABLE_COLUMNS_MAX 12

struct table_column {
    const char *head;
    bool right;     /* aligned at the right */
    uint8_t leaves; /* the order in which columns are left out, 1 first; 0: always shown */
};

/* Members are private. */
struct table {
    const struct table_column *columns;
    uint32_t column_count, cell_count;
    FILE *cells; /* writes to `text`; a NUL ends each cell */
    char *text;
    size_t bytes;
};

/* An empty table. `columns` outlive it: at least two, at most TABLE_COLUMNS_MAX; the first and the last are
 * always shown. */
void table_init(struct table *t, const struct table_column *columns, uint32_t column_count);
/* Adds the row's next cell. Control characters become \x1b and the like. */
void table_cell(struct table *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Prints heads and rows, if there are rows, and frees the table. Every row is complete. 0, or -ENOMEM: a cell
 * found no memory, and nothing is printed. */
int table_end(struct table *t, FILE *f);

#endif
