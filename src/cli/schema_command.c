/* schema_command.c - the command schema: which instances the grammar of a JSON Schema accepts, without a
 * model.
 *
 * The grammar has members in the schema's order. So an instance is tried as it stands, and then with its
 * members in that order and numbers without exponents: the same value, as a model would write it. */
#include "cli/cli.h"
#include "cli/output.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/files/small_file.h"
#include "base/json/json_source_load.h"
#include "base/wide_integer.h"
#include "base/wanted.h"
#include "grammar/matcher.h"
#include "host/settings.h"
#include "schema/schema.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define SCHEMA_FILE_MAX    ((size_t)16 << 20)
#define INSTANCE_BYTES_MAX ((size_t)16 << 20)
#define COMPILE_MS         2000
#define STACK_BYTES        ((size_t)16 << 20)
#define PIECE_BYTES        ((size_t)1 << 10)

struct judge {
    const json_t *schema;
    struct grammar *grammar;
    struct matcher_tables *tables;
    struct matcher *matcher;
    struct buf text;
    struct wide_integers wide; /* wide integers of the schema */
};

static int read_schema(const char *path, json_t **ret, struct err *e)
{
    json_error_t why;
    struct small_file f = {0};
    int r = small_file_read(path, SCHEMA_FILE_MAX, &f, e);
    if (r < 0)
        return r;
    *ret = json_source_load((struct slice){f.bytes, f.len}, JSON_DECODE_ANY, &why);
    small_file_done(&f);
    return *ret ? 0 : err_set(e, -EINVAL, "%s, line %d: %s", path, why.line, why.text);
}

static int open_matcher(struct judge *j, struct err *e)
{
    struct matcher_tables_opts tables = {.grammar = j->grammar};
    int r = matcher_tables_create(&tables, &j->tables);
    struct matcher_opts opts = {.tables = j->tables, .bytes_max = STACK_BYTES};
    if (r == 0)
        r = matcher_create(&opts, &j->matcher);
    return r < 0 ? err_set(e, r, "no memory for the matcher") : 0;
}

static int compile(struct judge *j, struct err *e)
{
    struct grammar_builder *b;
    struct buf ignored;
    struct wanted wanted = {.deadline_ns = clock_now_ns() + COMPILE_MS * NS_PER_MS};
    struct schema_opts opts = {.wanted = &wanted, .ignored = &ignored};
    sym_id start;
    if (grammar_builder_create(NULL, NULL, &b) < 0)
        return err_set(e, -ENOMEM, "no memory to compile the schema");
    grammar_builder_bound(b, &wanted, NULL);
    buf_init(&ignored, 4096, NULL);
    int r = schema_compile(b, j->schema, &opts, &start, e);
    if (r == 0)
        r = grammar_finish(b, start, &j->grammar, e);
    if (r == 0 && ignored.len)
        plain_printf(stderr, "plateau: no draft defines these keywords, so they assert nothing: %.*s\n",
                     SLICE_ARGS(buf_slice(&ignored)));
    buf_done(&ignored);
    grammar_builder_free(b);
    return r < 0 ? r : open_matcher(j, e);
}

/* 1, 0, or -E2BIG: too complex. */
static int matches(struct judge *j, struct slice text)
{
    int r = 1;
    matcher_reset(j->matcher);
    for (size_t at = 0; at < text.len && r == 1; at += PIECE_BYTES)
        r = matcher_take_bytes(j->matcher, slice_sub(text, at, PIECE_BYTES));
    return r == 1 ? matcher_may_end(j->matcher) : r;
}

static int matches_ordered(struct judge *j, json_t *instance)
{
    struct err e;
    struct wanted wanted = {.deadline_ns = clock_now_ns() + COMPILE_MS * NS_PER_MS};
    struct schema_opts opts = {.wanted = &wanted};
    json_t *ordered;
    if (schema_order(j->schema, &opts, instance, &ordered, &e) < 0)
        return 0;
    buf_clear(&j->text);
    schema_write(&j->text, ordered);
    json_decref(ordered);
    return j->text.error ? -E2BIG : matches(j, buf_slice(&j->text));
}

static int judge_text(struct judge *j, struct slice text)
{
    json_error_t why;
    struct wide_integers wide = {0}, *before = wide_integers_enter(&wide);
    json_t *instance =
        json_source_load(text, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &why);
    int r = instance ? matches(j, text) : 0;
    if (instance && r == 0)
        r = matches_ordered(j, instance);
    json_decref(instance);
    wide_integers_enter(before);
    return r;
}

/* `why`: the schema is not supported, for this reason. */
static void print_verdict(struct judge *j, struct slice line, const char *why)
{
    int r = why                             ? -ENOTSUP
            : line.len > INSTANCE_BYTES_MAX ? -E2BIG
                                            : judge_text(j, slice_trim(line, SLICE_BLANKS));
    puts(r < 0 ? "unsupported" : r ? "accept" : "reject");
    if (r == -E2BIG)
        fputs("plateau: the instance is too long or too complex for the grammar\n", stderr);
    fflush(stdout);
}

static void judge_lines(struct judge *j, const char *why)
{
    char *line = NULL;
    size_t room = 0;
    ssize_t len;
    while ((len = getline(&line, &room, stdin)) > 0)
        print_verdict(j, (struct slice){line, (size_t)len}, why);
    free(line);
}

static int judge_file(const char *path)
{
    struct judge j = {0};
    struct err e = {{0}};
    json_t *schema = NULL;
    buf_init(&j.text, 2 * INSTANCE_BYTES_MAX, NULL);
    wide_integers_enter(&j.wide);
    int r = read_schema(path, &schema, &e);
    if (r == 0) {
        j.schema = schema;
        r = compile(&j, &e);
        if (r < 0)
            plain_printf(stderr, "plateau: unsupported: %s\n", e.text);
        judge_lines(&j, r < 0 ? e.text : NULL);
    } else {
        plain_error(e.text);
    }
    matcher_free(j.matcher);
    matcher_tables_free(j.tables);
    grammar_free(j.grammar);
    buf_done(&j.text);
    json_decref(schema);
    wide_integers_enter(NULL);
    return r < 0 ? 1 : 0;
}

static int run(struct settings *o, struct err *e)
{
    if (!o->argument)
        return err_set(e, -EINVAL, "a FILE with the schema is missing; see plateau schema --help");
    return judge_file(o->argument);
}

int command_schema(int argc, char **argv)
{
    return cli_run(COMMAND_SCHEMA, argc, argv, run);
}
