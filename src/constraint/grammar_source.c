/* grammar_source.c - the front end of each kind, within one limit of time. */
#include "constraint/grammar_source.h"

#include "constraint/choice_rules.h"
#include "constraint/gbnf.h"
#include "constraint/lark.h"
#include "constraint/structural.h"
#include "constraint/tool_grammar.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/json/json_source_load.h"
#include "base/wide_integer.h"
#include "grammar/grammar_frame.h"
#include "schema/schema.h"

#include <errno.h>
#include <openssl/sha.h>
#include <stdlib.h>

struct compiling {
    struct grammar_builder *b;
    struct slice text;
    struct wanted wanted;
    const struct charge *work;
    const struct structural_tokens *tokens;
    struct err *e;
};

/* ---- Front ends ---- */

static int parse_json(struct compiling *c, const char *what, json_t **ret)
{
    json_error_t why;
    size_t flags = JSON_DECODE_ANY | JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL;
    *ret = json_source_load(c->text, flags, &why);
    return *ret ? 0 : err_set(c->e, -EINVAL, "the %s is not JSON: %s (line %d)", what, why.text, why.line);
}

static int from_object(struct compiling *c, sym_id *ret)
{
    *ret = choice_json_object(c->b);
    return 0;
}

static int from_schema(struct compiling *c, sym_id *ret)
{
    json_t *schema;
    struct schema_opts opts = {.wanted = &c->wanted, .charge = c->work, .plain = true};
    int r = parse_json(c, "schema", &schema);
    if (r < 0)
        return r;
    r = schema_compile(c->b, schema, &opts, ret, c->e);
    json_decref(schema);
    return r;
}

static int from_regex(struct compiling *c, sym_id *ret)
{
    return choice_compile_regex(c->b, c->text, ret, c->e);
}

static int from_list(struct compiling *c, const json_t *list, sym_id *ret)
{
    uint32_t count = (uint32_t)json_array_size(list);
    if (count > CHOICE_COUNT_MAX)
        return err_set(c->e, -E2BIG, "a choice has at most %d texts; this one has %u", CHOICE_COUNT_MAX,
                       count);
    struct slice *texts = malloc((count + 1) * sizeof(*texts));
    if (!texts)
        return err_set(c->e, -ENOMEM, "no memory for the choice");
    int r = json_is_array(list) ? 0 : err_set(c->e, -EINVAL, "a choice is a list of texts");
    for (uint32_t i = 0; i < count && r == 0; i++) {
        const json_t *text = json_array_get(list, i);
        texts[i] = (struct slice){json_string_value(text), json_string_length(text)};
        if (!json_is_string(text))
            r = err_set(c->e, -EINVAL, "element %u of the choice is not a text", i);
    }
    if (r == 0)
        r = choice_compile(c->b, texts, count, ret, c->e);
    free(texts);
    return r;
}

static int from_choice(struct compiling *c, sym_id *ret)
{
    json_t *list;
    int r = parse_json(c, "choice", &list);
    if (r < 0)
        return r;
    r = from_list(c, list, ret);
    json_decref(list);
    return r;
}

static int from_gbnf(struct compiling *c, sym_id *ret)
{
    return gbnf_compile(c->b, c->text, c->work, ret, c->e);
}

static int from_lark(struct compiling *c, sym_id *ret)
{
    const struct schema_opts schemas = {.wanted = &c->wanted, .charge = c->work, .plain = true};
    const struct lark_opts opts = {.charge = c->work, .schemas = &schemas};
    return lark_compile_as(c->b, c->text, &opts, ret, c->e);
}

static int from_structural(struct compiling *c, sym_id *ret)
{
    json_t *source;
    struct schema_opts opts = {.wanted = &c->wanted, .charge = c->work};
    int r = parse_json(c, "structural tag", &source);
    if (r < 0)
        return r;
    r = structural_compile(c->b, source, &opts, c->tokens, ret, c->e);
    json_decref(source);
    return r;
}

static int from_tools(struct compiling *c, sym_id *ret)
{
    json_t *source;
    struct schema_opts opts = {.wanted = &c->wanted, .charge = c->work};
    int r = parse_json(c, "description of tools", &source);
    if (r < 0)
        return r;
    r = tool_grammar_compile(c->b, source, &opts, ret, c->e);
    json_decref(source);
    return r;
}

static const struct front_end {
    const char *name;
    int (*compile)(struct compiling *c, sym_id *ret);
} front_ends[GRAMMAR_KIND_COUNT] = {
    [GRAMMAR_JSON_OBJECT] = {"object", from_object},
    [GRAMMAR_JSON_SCHEMA] = {"schema", from_schema},
    [GRAMMAR_REGEX] = {"pattern", from_regex},
    [GRAMMAR_CHOICE] = {"choice", from_choice},
    [GRAMMAR_GBNF] = {"grammar", from_gbnf},
    [GRAMMAR_LARK] = {"grammar", from_lark},
    [GRAMMAR_STRUCTURAL] = {"structural tag", from_structural},
    [GRAMMAR_TOOLS] = {"grammar of tools", from_tools},
};

const char *grammar_kind_name(enum grammar_kind kind)
{
    ASSERT((size_t)kind < COUNT_OF(front_ends));
    return front_ends[kind].name;
}

/* ---- The whole ---- */

static void digest(struct slice text, uint8_t *ret)
{
    SHA256((const unsigned char *)(text.len ? text.ptr : ""), text.len, ret);
}

/* Hashes the digests of all parts, each with its kind and token. */
void grammar_source_key(const struct grammar_source *s, uint8_t ret[GRAMMAR_SOURCE_KEY_BYTES])
{
    struct {
        uint32_t kind, token;
        uint8_t text[SHA256_DIGEST_LENGTH];
    } parts[2 + GRAMMAR_PARTS_MAX];
    uint32_t count = s->frame ? s->frame->count : 0;
    _Static_assert(GRAMMAR_SOURCE_KEY_BYTES == SHA256_DIGEST_LENGTH, "a digest");
    memset(parts, 0, sizeof(parts));
    parts[0].kind = (uint32_t)s->kind;
    digest(s->text, parts[0].text);
    parts[1].kind = (uint32_t)s->scope.tenant;
    parts[1].token = (uint32_t)(s->scope.tenant >> 32);
    digest(s->scope.salt, parts[1].text);
    for (uint32_t i = 0; i < count; i++) {
        const struct grammar_part *p = &s->frame->parts[i];
        parts[i + 2].kind = (uint32_t)p->kind;
        parts[i + 2].token = p->token;
        digest(p->text, parts[i + 2].text);
    }
    SHA256((const unsigned char *)parts, (count + 2) * sizeof(parts[0]), ret);
}

/* Whether the limit of time ended the work, and not the request. */
static bool took_too_long(const struct compiling *c, int result)
{
    int why = grammar_builder_stopped(c->b);
    if (result != -ETIME && why != -ETIME)
        return false;
    return clock_thread_ns() >= c->wanted.cpu_deadline_ns;
}

/* Failures of the builder become the reason that `wanted` had. */
static int reason(const struct compiling *c, const struct grammar_source *s, uint64_t cpu_ns, int r)
{
    if (r == 0)
        return 0;
    if (took_too_long(c, r))
        return err_set(c->e, -E2BIG,
                       "the %s takes more than %llu ms of a processor to compile; a smaller one is needed",
                       grammar_kind_name(s->kind), (ull)(cpu_ns / NS_PER_MS));
    int stopped = grammar_builder_stopped(c->b);
    return stopped < 0 ? err_set(c->e, stopped, "the %s is no longer needed", grammar_kind_name(s->kind)) : r;
}

int grammar_source_compile(const struct grammar_source *s, const struct grammar_source_opts *opts,
                           struct grammar **ret, struct err *e)
{
    struct compiling c = {.text = s->text, .work = opts->work, .tokens = s->tokens, .e = e};
    uint64_t cpu_ns = opts->cpu_ns ? opts->cpu_ns : GRAMMAR_SOURCE_CPU_MS * NS_PER_MS;
    sym_id start;
    if (s->text.len > GRAMMAR_SOURCE_BYTES_MAX)
        return err_set(e, -E2BIG, "the %s has %zu KiB; %zu KiB are allowed", grammar_kind_name(s->kind),
                       s->text.len >> 10, GRAMMAR_SOURCE_BYTES_MAX >> 10);
    if (opts->wanted)
        c.wanted = *opts->wanted;
    c.wanted.cpu_deadline_ns = clock_thread_ns() + cpu_ns;
    if (grammar_builder_create(NULL, opts->work, &c.b) < 0)
        return err_set(e, -ENOMEM, "no memory to compile the %s", grammar_kind_name(s->kind));
    grammar_builder_bound(c.b, &c.wanted, opts->charge);
    struct wide_integers wide = {0}, *before = wide_integers_enter(&wide);
    int r = front_ends[s->kind].compile(&c, &start);
    wide_integers_enter(before);
    if (r == 0 && s->frame)
        start = grammar_frame_around(s->frame, c.b, start);
    if (r == 0)
        r = grammar_finish(c.b, start, ret, e);
    r = reason(&c, s, cpu_ns, r);
    grammar_builder_free(c.b);
    return r;
}
