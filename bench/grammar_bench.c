/* grammar_bench.c - grammar_bench [LEAST_MS]: masks of constrained decoding, with a vocabulary of Qwen's
 * size.
 *
 * The vocabulary is made up (bench_vocab.h). Each grammar is walked along texts of its own, cut into longest
 * tokens as a model would mostly do; before each token its mask is made. A grammar's tables are fresh for
 * each text, so first masks count.
 *
 * Printed are microseconds of processor time: of making grammar and tables, and of masks (p50, p99, largest);
 * then the states of the automaton, how often it was full, and rows per token. */
#include "base/check.h"
#include "base/err.h"
#include "bench_vocab.h"
#include "grammar/matcher_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SAMPLES_MAX = 1 << 20 };

static uint32_t samples[SAMPLES_MAX], sample_count;

/* ---- Grammars ---- */

struct json {
    struct grammar_builder *b;
    struct rx_store *s;
    rx_id chars, space;
    sym_id string, number, value, object, array;
};

static rx_id bytes_of(struct rx_store *s, const char *bytes)
{
    struct rx_bytes set = {{0}};
    for (; *bytes; bytes++)
        set.bits[(uint8_t)*bytes / 64] |= 1ull << (uint8_t)*bytes % 64;
    return rx_bytes(s, &set);
}

static rx_id literal(struct rx_store *s, const char *text)
{
    return rx_literal(s, slice_of(text));
}

static rx_id string_of(struct json *j, rx_id body)
{
    return rx_cat(j->s, literal(j->s, "\""), rx_cat(j->s, body, literal(j->s, "\"")));
}

static sym_id term(struct json *j, const char *text)
{
    return grammar_terminal(j->b, rx_cat(j->s, literal(j->s, text), j->space));
}

static void json_terminals(struct json *j)
{
    static const struct rx_range plain[] = {{0x20, 0x21}, {0x23, 0x5B}, {0x5D, 0xD7FF}, {0xE000, 0x10FFFF}};
    struct rx_store *s = j->s;
    rx_id hex = bytes_of(s, "0123456789abcdefABCDEF"), digit = bytes_of(s, "0123456789");
    rx_id escape =
        rx_cat(s, literal(s, "\\"),
               rx_or(s, bytes_of(s, "\"\\/bfnrt"), rx_cat(s, literal(s, "u"), rx_repeat(s, hex, 4, 4))));
    j->chars = rx_or(s, rx_codepoints(s, plain, 4), escape);
    j->space =
        rx_or(s, RX_EMPTY,
              rx_or(s, literal(s, " "), rx_cat(s, literal(s, "\n"), rx_repeat(s, literal(s, " "), 0, 20))));
    j->string = grammar_terminal(j->b, string_of(j, rx_repeat(s, j->chars, 0, RX_UNBOUNDED)));
    rx_id whole =
        rx_or(s, literal(s, "0"), rx_cat(s, bytes_of(s, "123456789"), rx_repeat(s, digit, 0, RX_UNBOUNDED)));
    rx_id part = rx_or(s, RX_EMPTY, rx_cat(s, literal(s, "."), rx_repeat(s, digit, 1, RX_UNBOUNDED)));
    j->number =
        grammar_terminal(j->b, rx_cat(s, rx_or(s, RX_EMPTY, literal(s, "-")), rx_cat(s, whole, part)));
}

/* Any JSON value. */
static void json_values(struct json *j)
{
    struct grammar_builder *b = j->b;
    sym_id members = grammar_rule(b), elements = grammar_rule(b), member = grammar_rule(b), word;
    j->value = grammar_rule(b), j->object = grammar_rule(b), j->array = grammar_rule(b);
    static const char *const words[] = {"true", "false", "null"};
    for (int i = 0; i < 3; i++) {
        word = grammar_terminal(b, literal(j->s, words[i]));
        grammar_alternative(b, j->value, &word, 1);
    }
    sym_id plain[] = {j->string, j->number, j->object, j->array};
    for (int i = 0; i < 4; i++)
        grammar_alternative(b, j->value, &plain[i], 1);
    sym_id space = grammar_terminal(b, j->space), colon = term(j, ":"), comma = term(j, ",");
    grammar_alternative(b, member, (sym_id[]){j->string, colon, j->value, space}, 4);
    grammar_alternative(b, members, (sym_id[]){member}, 1);
    grammar_alternative(b, members, (sym_id[]){member, comma, members}, 3);
    grammar_alternative(b, elements, (sym_id[]){j->value, space}, 2);
    grammar_alternative(b, elements, (sym_id[]){j->value, space, comma, elements}, 4);
    grammar_alternative(b, j->object, (sym_id[]){term(j, "{"), grammar_terminal(b, literal(j->s, "}"))}, 2);
    grammar_alternative(b, j->object,
                        (sym_id[]){term(j, "{"), members, grammar_terminal(b, literal(j->s, "}"))}, 3);
    grammar_alternative(b, j->array, (sym_id[]){term(j, "["), grammar_terminal(b, literal(j->s, "]"))}, 2);
    grammar_alternative(b, j->array,
                        (sym_id[]){term(j, "["), elements, grammar_terminal(b, literal(j->s, "]"))}, 3);
}

static sym_id any_value(struct json *j)
{
    return j->value;
}

static sym_id property(struct json *j, const char *name, sym_id value)
{
    sym_id rule = grammar_rule(j->b);
    char text[64];
    snprintf(text, sizeof(text), "\"%s\":", name);
    grammar_alternative(j->b, rule, (sym_id[]){term(j, text), value}, 2);
    return rule;
}

/* Properties in order, those from `required` on optional: a chain. */
static sym_id object_of(struct json *j, const sym_id *properties, uint32_t count, uint32_t required)
{
    struct grammar_builder *b = j->b;
    sym_id space = grammar_terminal(b, j->space), rest = grammar_terminal(b, RX_EMPTY);
    for (uint32_t i = count; i-- > 1;) {
        sym_id rule = grammar_rule(b);
        grammar_alternative(b, rule, (sym_id[]){term(j, ","), properties[i], space, rest}, 4);
        if (i >= required)
            grammar_alternative(b, rule, (sym_id[]){rest}, 1);
        rest = rule;
    }
    sym_id made = grammar_rule(b), close = grammar_terminal(b, literal(j->s, "}"));
    grammar_alternative(b, made, (sym_id[]){term(j, "{"), properties[0], space, rest, close}, 5);
    return made;
}

static sym_id array_of(struct json *j, sym_id element)
{
    struct grammar_builder *b = j->b;
    sym_id space = grammar_terminal(b, j->space), list = grammar_rule(b), made = grammar_rule(b);
    grammar_alternative(b, list, (sym_id[]){element, space}, 2);
    grammar_alternative(b, list, (sym_id[]){element, space, term(j, ","), list}, 4);
    grammar_alternative(b, made, (sym_id[]){term(j, "["), list, grammar_terminal(b, literal(j->s, "]"))}, 3);
    return made;
}

static sym_id schema(struct json *j)
{
    static const char *const kinds[] = {"person", "company", "place", "event"};
    rx_id kind = RX_NONE;
    for (int i = 0; i < 4; i++)
        kind = rx_or(j->s, kind, string_of(j, literal(j->s, kinds[i])));
    sym_id tag = property(j, "label", grammar_terminal(j->b, string_of(j, rx_repeat(j->s, j->chars, 1, 40))));
    sym_id tags[] = {tag, property(j, "score", j->number)};
    sym_id list = array_of(j, object_of(j, tags, 2, 2));
    sym_id all[] = {property(j, "name", j->string), property(j, "kind", grammar_terminal(j->b, kind)),
                    property(j, "age", j->number),  property(j, "summary", j->string),
                    property(j, "tags", list),      property(j, "note", j->string),
                    property(j, "extra", j->value)};
    return object_of(j, all, 7, 5);
}

static sym_id wide(struct json *j)
{
    sym_id all[300];
    char name[16];
    for (uint32_t i = 0; i < 300; i++) {
        snprintf(name, sizeof(name), "field_%u", i);
        all[i] = property(j, name, i % 2 ? j->string : j->number);
    }
    return object_of(j, all, 300, 1);
}

/* Letters only, and a bound: nothing of a slice. */
static sym_id narrow(struct json *j)
{
    rx_id letters = bytes_of(j->s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ ");
    sym_id all[] = {
        property(j, "slug", grammar_terminal(j->b, string_of(j, rx_repeat(j->s, letters, 3, 200)))),
        property(j, "text", grammar_terminal(j->b, string_of(j, rx_repeat(j->s, j->chars, 0, 2000))))};
    return object_of(j, all, 2, 2);
}

static const struct {
    const char *name;
    sym_id (*make)(struct json *j);
    const char *text;
} grammars[] = {
    {"any JSON", any_value,
     "{\"name\": \"preun laing\", \"list\": [1, 2.5, true, {\"de er\": \"grament con\"}], \"text\": \"verewa "
     "ho or "
     "prequ tion\\n unla ing no\", \"none\": null, \"n\": -12}"},
    {"schema", schema,
     "{\"name\": \"Bacon Dement\", \"kind\": \"company\", \"age\": 42, \"summary\": \"ingka la or preun ho "
     "no ver "
     "ing, detion st re ba. Junela orpre.\", \"tags\": [{\"label\": \"gra\", \"score\": 0.5}, {\"label\": "
     "\"ho no\", "
     "\"score\": 12}], \"note\": \"wa\", \"extra\": {\"a\": [1, \"b\"]}}"},
    {"300 optional properties", wide,
     "{\"field_0\": 1, \"field_7\": \"con la\", \"field_8\": 3, \"field_151\": \"ing or\", \"field_299\": "
     "\"st\"}"},
    {"letters and lengths", narrow,
     "{\"slug\": \"deer fi graho ingju kala ment\", \"text\": \"no or pre qu re st tion un ve wa x y s, con "
     "la. "
     "Dement wa ho, ver ing st!\"}"},
};

/* ---- Measuring ---- */

static uint64_t cpu_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static double at_share(uint32_t from, double share)
{
    return samples[from + (uint32_t)((double)(sample_count - 1 - from) * share)] / 1e3;
}

struct totals {
    uint64_t compile_ns, tables_ns;
    uint32_t tokens, states, flushes, units, rounds;
};

static void follow(struct matcher *m, const struct grammar_vocab *v, struct slice text, uint32_t *bits,
                   struct totals *sum)
{
    for (size_t at = 0; at < text.len;) {
        struct matcher_mask mask;
        uint64_t start = cpu_ns();
        ASSERT(matcher_mask(m, 0, bits, &mask) == 0);
        if (sample_count < SAMPLES_MAX)
            samples[sample_count++] = (uint32_t)(cpu_ns() - start);
        uint32_t token = bench_vocab_longest(v, text, at, bits);
        ASSERT(token != UINT32_MAX && matcher_take(m, token) == 1);
        at += grammar_vocab_text(v, token).len;
        sum->tokens++;
    }
    ASSERT(matcher_may_end(m));
}

static void round_of(uint32_t index, const struct grammar_vocab *v, uint32_t *bits, struct totals *sum)
{
    struct json j = {0};
    struct grammar *g;
    struct matcher_tables *t;
    struct matcher *m;
    uint64_t start = cpu_ns();
    ASSERT(grammar_builder_create(NULL, NULL, &j.b) == 0);
    j.s = grammar_rx(j.b);
    json_terminals(&j);
    json_values(&j);
    struct err e = {{0}};
    if (grammar_finish(j.b, grammars[index].make(&j), &g, &e) < 0) {
        printf("%s\n", e.text);
        exit(1);
    }
    grammar_builder_free(j.b);
    sum->compile_ns += cpu_ns() - start;
    start = cpu_ns();
    ASSERT(matcher_tables_create(&(struct matcher_tables_opts){.grammar = g, .vocab = v}, &t) == 0);
    ASSERT(matcher_create(&(struct matcher_opts){.tables = t}, &m) == 0);
    sum->tables_ns += cpu_ns() - start;
    follow(m, v, slice_of(grammars[index].text), bits, sum);
    sum->units += m->top;
    sum->states += t->pool_used;
    sum->flushes += (uint32_t)t->flushes;
    sum->rounds++;
    matcher_free(m);
    matcher_tables_free(t);
    grammar_free(g);
}

int main(int argc, char **argv)
{
    uint64_t least_ns = (argc > 1 ? strtoull(argv[1], NULL, 10) : 500) * 1000000;
    struct grammar_vocab *v = bench_vocab_made_up();
    uint32_t *bits = malloc(v->words * sizeof(*bits));
    ASSERT(bits);
    printf("%-26s %8s %8s %8s %8s %8s %8s %6s %6s\n", "us", "compile", "tables", "p50", "p99", "max", "words",
           "full", "B/tok");
    for (uint32_t i = 0; i < COUNT_OF(grammars); i++) {
        struct totals sum = {0};
        sample_count = 0;
        for (uint64_t start = cpu_ns(); cpu_ns() - start < least_ns || sum.rounds < 3;)
            round_of(i, v, bits, &sum);
        qsort(samples, sample_count, sizeof(*samples), by_value);
        printf("%-26s %8.1f %8.1f %8.1f %8.1f %8.1f %8u %6u %6.1f\n", grammars[i].name,
               (double)sum.compile_ns / sum.rounds / 1e3, (double)sum.tables_ns / sum.rounds / 1e3,
               at_share(0, 0.5), at_share(0, 0.99), at_share(0, 1), sum.states / sum.rounds,
               sum.flushes / sum.rounds, 8.0 * sum.units / sum.tokens);
    }
    free(bits);
    grammar_vocab_free(v);
    return 0;
}
