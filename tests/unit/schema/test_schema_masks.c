/* Masks of objects with many names, for a vocabulary with long runs of white space. */
#include "test_schema.h"

#include "grammar/matcher.h"

enum { RUNS = 81, TOKENS = 128 + 2 * RUNS, WORK_MAX = 1 << 20, MANY = 500 };

/* ASCII, then runs of spaces, then the same runs after a line end. */
static struct slice token_bytes(void *arg, uint32_t id)
{
    static char spaces[RUNS + 1], line[RUNS + 2], one[128];
    (void)arg;
    memset(spaces, ' ', RUNS);
    memset(line, ' ', RUNS + 1);
    line[0] = '\n';
    for (uint32_t i = 0; i < 128; i++)
        one[i] = (char)i;
    if (id < 128)
        return (struct slice){one + id, id != ' ' && id != '\n'};
    id -= 128;
    return id < RUNS ? (struct slice){spaces, id + 1} : (struct slice){line, id - RUNS + 1};
}

struct scene {
    struct grammar *grammar;
    struct grammar_vocab *vocab;
    struct matcher_tables *tables;
    struct matcher *matcher;
};

static void make(struct scene *s, const char *schema)
{
    static const uint32_t ends[] = {TOKENS};
    struct grammar_vocab_opts vocab = {
        .size = TOKENS + 1, .bytes = token_bytes, .ends = ends, .end_count = 1};
    struct err e = {{0}};
    int r = schema_grammar(schema, &s->grammar, &e);
    if (r < 0)
        print_error("%s\n", e.text);
    assert_int_equal(r, 0);
    assert_int_equal(grammar_vocab_create(&vocab, &s->vocab), 0);
    struct matcher_tables_opts tables = {.grammar = s->grammar, .vocab = s->vocab};
    assert_int_equal(matcher_tables_create(&tables, &s->tables), 0);
    struct matcher_opts opts = {.tables = s->tables};
    assert_int_equal(matcher_create(&opts, &s->matcher), 0);
}

static void done(struct scene *s)
{
    matcher_free(s->matcher);
    matcher_tables_free(s->tables);
    grammar_vocab_free(s->vocab);
    grammar_free(s->grammar);
}

/* A mask before each byte of the text, which has ' for " and ~ for a line end. */
static void masks_along(struct scene *s, const char *text)
{
    static uint32_t bits[TOKENS / 32 + 1];
    struct matcher_mask mask;
    for (const char *c = text; *c; c++) {
        char byte = *c == '\'' ? '"' : *c == '~' ? '\n' : *c;
        int r = matcher_mask(s->matcher, WORK_MAX, bits, &mask);
        if (r < 0)
            print_error("no mask after %.*s\n", (int)(c - text), text);
        assert_int_equal(r, 0);
        assert_int_equal(matcher_take_bytes(s->matcher, (struct slice){&byte, 1}), 1);
    }
    assert_true(matcher_may_end(s->matcher));
}

/* `count` names p0, p1 ..., each with `value`; `more`: members of the schema after the properties. */
static char *schema_of(uint32_t count, const char *value, const char *more)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    fprintf(f, "{'$defs': {'x': {'type': 'object', 'properties': {");
    for (uint32_t i = 0; i < count; i++)
        fprintf(f, "%s'p%u': %s", i ? "," : "", i, value);
    fprintf(f, "}%s}}, '$ref': '#/$defs/x'}", more);
    fclose(f);
    return text;
}

TEST(any_number_of_optional_names_has_masks_in_white_space)
{
    static const uint32_t counts[] = {60, MANY, 2000};
    static const char *const more[] = {"", ",'additionalProperties': false", ",'required': ['p7']",
                                       ",'minProperties': 2,'additionalProperties': false"};
    for (size_t i = 0; i < COUNT_OF(counts); i++)
        for (size_t k = 0; k < COUNT_OF(more); k++) {
            struct scene s;
            char *schema =
                schema_of(counts[i], "{'anyOf': [{'type': 'null'},{'$ref': '#/$defs/x'}]}", more[k]);
            make(&s, schema);
            masks_along(&s, "{~    'p7': {~        'p6': null,~\t\t'p7': {'p7':null, 'p40': null},~    'p8': "
                            "null}, 'p50': null }");
            done(&s);
            free(schema);
        }
}

TEST(every_one_of_many_optional_names_may_come)
{
    struct scene s;
    char *schema = schema_of(MANY, "{'type': 'null'}", ""), *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    for (uint32_t i = 0; i < MANY; i++)
        fprintf(f, "%s'p%u':null", i ? "," : "{", i);
    fprintf(f, ",'other':{}}");
    fclose(f);
    make(&s, schema);
    masks_along(&s, text);
    done(&s);
    free(text);
    free(schema);
}

TEST_MAIN()
