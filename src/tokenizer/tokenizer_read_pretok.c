/* tokenizer_read_pretok.c - the pre-tokenizer's members as stages.
 *
 * What a member does is written as a regex and a behaviour, as the reference does it. The regexes of the
 * commonest models run as hand-written code instead. */
#include "tokenizer/pretok.h"
#include "tokenizer/pretok_stage.h"
#include "tokenizer/split_regex.h"
#include "tokenizer/tokenizer_read.h"
#include "tokenizer/tokenizer_state.h"

#include "base/arena.h"
#include "base/check.h"
#include "base/err.h"
#include "base/slice.h"

#include <errno.h>

#define GPT2_REGEX "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

struct reading {
    struct tokenizer *t;
    struct arena *a;
    struct err *e;
    bool mapped; /* a ByteLevel stood before */
};

static int refuse(const struct reading *in, const json_t *member, const char *what)
{
    return err_set(in->e, -EINVAL, "tokenizer.json: pre_tokenizer \"%.*s\": %s",
                   SLICE_ARGS(tokenizer_stage_type(member)), what);
}

static struct pretok_stage *new_stage(const struct reading *in)
{
    struct pretok *p = &in->t->pretok;
    return p->count < PRETOK_STAGES_MAX ? &p->stages[p->count++] : NULL;
}

static int add_stage(struct reading *in, const json_t *member, const struct pretok_stage *stage)
{
    struct pretok_stage *s = new_stage(in);
    ASSERT(stage->kind != STAGE_RULE || !in->mapped); /* hand-written rules read the text's own bytes */
    if (!s)
        return refuse(in, member, "there are more stages than can be used");
    *s = *stage;
    s->mapped = in->mapped;
    return 0;
}

static int add_regex(struct reading *in, const json_t *member, struct slice regex,
                     enum split_behavior behavior, bool invert)
{
    struct pretok_stage s = {.kind = STAGE_SPLIT, .behavior = behavior, .invert = invert};
    struct split_regex *compiled = NULL;
    if (behavior == SPLIT_ISOLATED && !in->mapped && pretok_rule_find(regex, &s.rule)) {
        s.kind = STAGE_RULE;
        return add_stage(in, member, &s);
    }
    int r = split_regex_compile(in->a, regex, &compiled, in->e);
    if (r < 0)
        return err_prefix(in->e, r, "tokenizer.json: pre_tokenizer");
    s.regex = compiled;
    return add_stage(in, member, &s);
}

static int read_behavior(const struct reading *in, const json_t *member, enum split_behavior *ret)
{
    static const char *const names[] = {[SPLIT_ISOLATED] = "Isolated",
                                        [SPLIT_REMOVED] = "Removed",
                                        [SPLIT_MERGED_WITH_PREVIOUS] = "MergedWithPrevious",
                                        [SPLIT_MERGED_WITH_NEXT] = "MergedWithNext",
                                        [SPLIT_CONTIGUOUS] = "Contiguous"};
    const json_t *behavior = json_object_get(member, "behavior");
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        if (json_is(behavior, names[i])) {
            *ret = (enum split_behavior)i;
            return 0;
        }
    }
    return behavior ? refuse(in, member, "this behavior is not known") : 0;
}

static int read_split(struct reading *in, const json_t *member)
{
    enum split_behavior behavior = SPLIT_ISOLATED;
    const json_t *pattern = json_object_get(member, "pattern");
    struct slice regex = json_slice(json_object_get(pattern, "Regex"));
    struct slice text = json_slice(json_object_get(pattern, "String"));
    bool invert = json_is_true(json_object_get(member, "invert"));
    int r = read_behavior(in, member, &behavior);
    if (r < 0)
        return r;
    if (regex.len)
        return add_regex(in, member, regex, behavior, invert);
    struct split_regex *compiled = NULL;
    r = split_regex_literal(in->a, text, &compiled, in->e);
    if (r < 0)
        return err_prefix(in->e, r, "tokenizer.json: pre_tokenizer");
    const struct pretok_stage s = {
        .kind = STAGE_SPLIT, .regex = compiled, .behavior = behavior, .invert = invert};
    return add_stage(in, member, &s);
}

static int read_byte_level(struct reading *in, const json_t *member)
{
    int r = 0;
    const json_t *use_regex = json_object_get(member, "use_regex");
    if (in->mapped)
        return refuse(in, member, "there are two");
    if (!json_is_off(json_object_get(member, "add_prefix_space")))
        r = add_stage(in, member, &(struct pretok_stage){.kind = STAGE_SPACE});
    if (r == 0 && (!use_regex || json_is_true(use_regex)))
        r = add_regex(in, member, SLICE(GPT2_REGEX), SPLIT_ISOLATED, false);
    in->mapped = true;
    return r;
}

static int read_digits(struct reading *in, const json_t *member)
{
    bool each = json_is_true(json_object_get(member, "individual_digits"));
    return add_regex(in, member, SLICE("\\p{N}"), each ? SPLIT_ISOLATED : SPLIT_CONTIGUOUS, false);
}

static int read_punctuation(struct reading *in, const json_t *member)
{
    struct pretok_stage s = {.kind = STAGE_PUNCTUATION};
    int r = read_behavior(in, member, &s.behavior);
    return r < 0 ? r : add_stage(in, member, &s);
}

static int read_whitespace(struct reading *in, const json_t *member)
{
    return add_regex(in, member, SLICE("\\w+|[^\\w\\s]+"), SPLIT_REMOVED, true);
}

static int read_whitespace_split(struct reading *in, const json_t *member)
{
    return add_regex(in, member, SLICE("\\s"), SPLIT_REMOVED, false);
}

static int read_bert(struct reading *in, const json_t *member)
{
    int r = read_whitespace_split(in, member);
    return r < 0 ? r : read_punctuation(in, member);
}

/* The scheme, in its newer and its older spelling. */
static int read_prepend(const struct reading *in, const json_t *member, enum prepend_scheme *ret)
{
    const json_t *scheme = json_object_get(member, "prepend_scheme");
    const json_t *older = json_object_get(member, "add_prefix_space");
    *ret = PREPEND_ALWAYS;
    if (json_is(scheme, "never") || (!scheme && json_is_false(older)))
        *ret = PREPEND_NEVER;
    else if (json_is(scheme, "first"))
        *ret = PREPEND_FIRST;
    else if (scheme && !json_is(scheme, "always"))
        return refuse(in, member, "this prepend_scheme is not known");
    return 0;
}

static int read_metaspace(struct reading *in, const json_t *member)
{
    struct slice replacement = json_slice(json_object_get(member, "replacement"));
    const json_t *split = json_object_get(member, "split");
    struct pretok_stage s = {.kind = STAGE_METASPACE, .splits = !split || json_is_true(split)};
    if (in->mapped)
        return refuse(in, member, "it cannot follow ByteLevel");
    if (replacement.len == 0 || replacement.len > 4 || replacement.ptr[0] == ' ')
        return refuse(in, member, "its replacement is not one character");
    int r = read_prepend(in, member, &s.prepend);
    s.replacement.len = replacement.len;
    s.replacement.ptr = arena_strndup(in->a, replacement.ptr, replacement.len);
    if (r == 0 && !s.replacement.ptr)
        return tokenizer_no_memory(in->e);
    return r < 0 ? r : add_stage(in, member, &s);
}

static int read_delimiter(struct reading *in, const json_t *member)
{
    struct split_regex *compiled = NULL;
    int r = split_regex_literal(in->a, json_slice(json_object_get(member, "delimiter")), &compiled, in->e);
    const struct pretok_stage s = {.kind = STAGE_SPLIT, .regex = compiled, .behavior = SPLIT_REMOVED};
    return r < 0 ? err_prefix(in->e, r, "tokenizer.json: pre_tokenizer") : add_stage(in, member, &s);
}

static const struct {
    const char *type;
    int (*read)(struct reading *in, const json_t *member);
} members[] = {{"Split", read_split},
               {"ByteLevel", read_byte_level},
               {"Digits", read_digits},
               {"Punctuation", read_punctuation},
               {"Whitespace", read_whitespace},
               {"WhitespaceSplit", read_whitespace_split},
               {"BertPreTokenizer", read_bert},
               {"Metaspace", read_metaspace},
               {"CharDelimiterSplit", read_delimiter}};

static int read_member(struct reading *in, const json_t *member)
{
    for (size_t i = 0; i < COUNT_OF(members); i++)
        if (json_is(json_object_get(member, "type"), members[i].type))
            return members[i].read(in, member);
    return refuse(in, member, "it is not supported");
}

int tokenizer_read_pre_tokenizer(struct tokenizer *t, struct arena *a, const json_t *pre, struct err *e)
{
    struct reading in = {.t = t, .a = a, .e = e};
    int r = 0;
    for (size_t i = 0; i < tokenizer_stage_count(pre, "pretokenizers") && r == 0; i++)
        r = read_member(&in, tokenizer_stage_member(pre, "pretokenizers", i));
    t->byte_level = in.mapped;
    return r;
}
