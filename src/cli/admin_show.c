/* admin_show.c - columns as wide as their widest cell. */
#include "cli/admin_show.h"

#include "base/bytes_text.h"
#include "base/check.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define CELL_BYTES  64
#define COLUMNS_MAX 8
#define ROWS_SHOWN  1024

/* ---- lines ---- */

static void put(FILE *f, const char *text)
{
    for (; *text; text++)
        fputc((unsigned char)*text < ' ' && *text != '\n' ? '?' : *text == 0x7f ? '?' : *text, f);
}

void admin_show_json(const struct admin_reply *r)
{
    printf("%.*s\n", SLICE_ARGS(buf_slice(&r->body)));
}

void admin_show_line(const char *format, ...)
{
    char text[2048];
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof(text), format, ap);
    va_end(ap);
    put(stdout, text);
    putchar('\n');
}

void admin_show_error(const char *text)
{
    fputs("plateau: ", stderr);
    put(stderr, text);
    fputc('\n', stderr);
}

/* ---- values ---- */

static const json_t *at(const json_t *object, const char *a, const char *b)
{
    const json_t *v = json_object_get(object, a);
    return b ? json_object_get(v, b) : v;
}

static unsigned long long count(const json_t *v)
{
    double x = json_number_value(v);
    return x > 0 ? (unsigned long long)x : 0;
}

static const char *text(const json_t *v)
{
    const char *s = json_string_value(v);
    return s ? s : "-";
}

static struct bytes_text bytes(const json_t *v)
{
    return bytes_text(count(v));
}

static void write_duration(double seconds, char *ret, size_t bytes_max)
{
    unsigned long long s = seconds > 0 ? (unsigned long long)seconds : 0;
    if (s < 120)
        snprintf(ret, bytes_max, "%llu s", s);
    else if (s < 7200)
        snprintf(ret, bytes_max, "%llu min", s / 60);
    else if (s < 172800)
        snprintf(ret, bytes_max, "%llu h %llu min", s / 3600, s / 60 % 60);
    else
        snprintf(ret, bytes_max, "%llu days %llu h", s / 86400, s / 3600 % 24);
}

/* ---- tables ---- */

typedef void cells_fn(const json_t *row, char cells[COLUMNS_MAX][CELL_BYTES]);

static void print_row(char cells[COLUMNS_MAX][CELL_BYTES], const int *widths, int columns)
{
    for (int i = 0; i < columns; i++) {
        put(stdout, cells[i]);
        if (i + 1 < columns)
            printf("%*s", widths[i] - (int)strlen(cells[i]) + 2, "");
    }
    putchar('\n');
}

static void print_table(const json_t *rows, const char *const *heads, int columns, cells_fn *cells_of)
{
    char cells[COLUMNS_MAX][CELL_BYTES];
    int widths[COLUMNS_MAX] = {0};
    size_t count_shown = MIN_OF(json_array_size(rows), (size_t)ROWS_SHOWN);
    ASSERT(columns <= COLUMNS_MAX);
    for (int i = 0; i < columns; i++)
        widths[i] = (int)strlen(heads[i]);
    for (size_t k = 0; k < count_shown; k++) {
        cells_of(json_array_get(rows, k), cells);
        for (int i = 0; i < columns; i++)
            widths[i] = MAX_OF(widths[i], (int)strlen(cells[i]));
    }
    for (int i = 0; i < columns; i++)
        snprintf(cells[i], CELL_BYTES, "%s", heads[i]);
    putchar('\n');
    print_row(cells, widths, columns);
    for (size_t k = 0; k < count_shown; k++) {
        cells_of(json_array_get(rows, k), cells);
        print_row(cells, widths, columns);
    }
}

static void model_cells(const json_t *m, char cells[COLUMNS_MAX][CELL_BYTES])
{
    snprintf(cells[0], CELL_BYTES, "%s", text(at(m, "id", NULL)));
    if (json_is_number(at(m, "progress", NULL)))
        snprintf(cells[1], CELL_BYTES, "%s %.0f %%", text(at(m, "state", NULL)),
                 100 * json_number_value(at(m, "progress", NULL)));
    else
        snprintf(cells[1], CELL_BYTES, "%s%s", text(at(m, "state", NULL)),
                 json_is_true(at(m, "pinned", NULL)) ? ", pinned" : "");
    snprintf(cells[2], CELL_BYTES, "%s", bytes(at(m, "used_bytes", NULL)).text);
    snprintf(cells[3], CELL_BYTES, "%s", bytes(at(m, "cache", "bytes")).text);
    snprintf(cells[4], CELL_BYTES, "%llu", count(at(m, "running", NULL)));
    snprintf(cells[5], CELL_BYTES, "%llu", count(at(m, "waiting", NULL)));
}

static void request_cells(const json_t *r, char cells[COLUMNS_MAX][CELL_BYTES])
{
    snprintf(cells[0], CELL_BYTES, "%s", text(at(r, "id", NULL)));
    snprintf(cells[1], CELL_BYTES, "%s", text(at(r, "key", NULL)));
    snprintf(cells[2], CELL_BYTES, "%s", text(at(r, "client", NULL)));
    snprintf(cells[3], CELL_BYTES, "%s", text(at(r, "model", NULL)));
    snprintf(cells[4], CELL_BYTES, "%s %.0f %%", text(at(r, "phase", NULL)),
             100 * json_number_value(at(r, "progress", NULL)));
    snprintf(cells[5], CELL_BYTES, "%llu", count(at(r, "tokens", NULL)));
    write_duration(json_number_value(at(r, "age_seconds", NULL)), cells[6], CELL_BYTES);
}

void admin_show_status(const char *where, const json_t *status, const json_t *memory)
{
    static const char *const models[] = {"MODEL", "STATE", "MEMORY", "CACHE", "RUNNING", "WAITING"};
    static const char *const requests[] = {"REQUEST", "KEY", "CLIENT", "MODEL", "PHASE", "TOKENS", "AGE"};
    const json_t *host = at(at(status, "caches", NULL), "host", NULL);
    char up[CELL_BYTES];
    write_duration(json_number_value(at(status, "uptime_seconds", NULL)), up, sizeof(up));
    admin_show_line("server        %s, up %s", where, up);
    admin_show_line("requests      %llu active, %llu waiting", count(at(status, "active_requests", NULL)),
                    count(at(status, "waiting_requests", NULL)));
    admin_show_line("memory        %s used, %s reserved of %s", bytes(at(memory, "used_bytes", NULL)).text,
                    bytes(at(memory, "reserved_bytes", NULL)).text,
                    bytes(at(memory, "limit_bytes", NULL)).text);
    admin_show_line("prefix cache  %s of %s", bytes(at(host, "bytes", NULL)).text,
                    bytes(at(host, "limit_bytes", NULL)).text);
    print_table(at(status, "models", NULL), models, COUNT_OF(models), model_cells);
    if (json_array_size(at(status, "requests", NULL)) > 0)
        print_table(at(status, "requests", NULL), requests, COUNT_OF(requests), request_cells);
}
