/* structural.c - a tree of formats to pieces. Each format gets the texts that end the tag around it: free
 * text has none of them. A trigger and the free text before it are one expression, up to the first place of
 * the trigger. */
#include "constraint/structural.h"

#include "constraint/gbnf.h"
#include "constraint/lark.h"
#include "constraint/structural_work.h"

#include "base/check.h"
#include "base/err.h"
#include "grammar/grammar_expr.h"
#include "rx/rx_parse.h"
#include "schema/schema.h"

#include <errno.h>
#include <string.h>

static struct expr format_of(struct structural_work *w, const json_t *format,
                             const struct structural_stops *ends);

static struct expr member_format(struct structural_work *w, const json_t *format, const char *name,
                                 const struct structural_stops *ends)
{
    size_t before = structural_enter(w, ".%s", name);
    struct expr ret = format_of(w, json_object_get(format, name), ends);
    structural_leave(w, before);
    return ret;
}

/* ---- texts of a language ---- */

static struct expr const_string(struct structural_work *w, const json_t *format,
                                const struct structural_stops *ends)
{
    const json_t *value = json_object_get(format, "value");
    (void)ends;
    if (!json_is_string(value))
        structural_fail(w, -EINVAL, "value must be a string");
    return structural_literal(w, (struct slice){json_string_value(value), json_string_length(value)});
}

/* A front end's refusal, with the place. */
static struct expr made(struct structural_work *w, int r, const struct err *why, sym_id sym)
{
    if (r == 0)
        return expr_sym(sym);
    structural_fail(w, r, "%s", why->text);
    return structural_none();
}

static struct expr json_value(struct structural_work *w, const json_t *schema)
{
    struct schema_opts opts = {.wanted = w->opts->wanted, .charge = w->opts->charge, .plain = true};
    struct err why = {{0}};
    sym_id sym = 0;
    if (!json_is_object(schema) && !json_is_boolean(schema)) {
        structural_fail(w, -EINVAL, "the schema must be an object, true or false");
        return structural_none();
    }
    int r = w->error ? w->error : schema_compile(w->b, schema, &opts, &sym, &why);
    return made(w, r, &why, sym);
}

static bool is_json(const json_t *style)
{
    return !style || json_is_null(style) ||
           (json_is_string(style) && strcmp(json_string_value(style), "json") == 0);
}

static struct expr json_schema(struct structural_work *w, const json_t *format,
                               const struct structural_stops *ends)
{
    (void)ends;
    if (!is_json(json_object_get(format, "style")) || !is_json(json_object_get(format, "parsing_type")))
        structural_fail(w, -ENOTSUP, "a style other than \"json\" is not supported");
    return json_value(w, json_object_get(format, "json_schema"));
}

static struct expr regex(struct structural_work *w, const json_t *format, const struct structural_stops *ends)
{
    static const struct rx_parse_opts whole = {.search = false};
    const json_t *pattern = json_object_get(format, "pattern");
    struct err why = {{0}};
    rx_id rx = RX_NONE;
    (void)ends;
    if (!json_is_string(pattern)) {
        structural_fail(w, -EINVAL, "pattern must be a string");
        return structural_none();
    }
    struct slice text = {json_string_value(pattern), json_string_length(pattern)};
    int r = rx_parse(w->s, text, &whole, &rx, &why);
    if (r < 0)
        structural_fail(w, r, "%s", why.text);
    return expr_rx(rx);
}

static struct expr grammar(struct structural_work *w, const json_t *format,
                           const struct structural_stops *ends)
{
    const json_t *value = json_object_get(format, "grammar");
    struct slice text = {json_string_value(value), json_string_length(value)};
    struct err why = {{0}};
    sym_id sym = 0;
    (void)ends;
    if (!json_is_string(value)) {
        structural_fail(w, -EINVAL, "grammar must be a string");
        return structural_none();
    }
    const struct lark_opts lark = {.charge = w->opts->charge, .schemas = w->opts};
    bool gbnf = slice_find(text, SLICE("::="), 0) != SIZE_MAX;
    int r = gbnf ? gbnf_compile(w->b, text, w->opts->charge, &sym, &why)
                 : lark_compile_as(w->b, text, &lark, &sym, &why);
    return made(w, r, &why, sym);
}

static struct expr any_text(struct structural_work *w, const json_t *format,
                            const struct structural_stops *ends)
{
    struct structural_stops all;
    if (!structural_excludes(w, format, ends, &all))
        return structural_none();
    return expr_rx(structural_free_text(w, &all, ends ? ends->all : NULL, ends ? ends->count : 0));
}

static struct expr token(struct structural_work *w, const json_t *format, const struct structural_stops *ends)
{
    (void)ends;
    return structural_token(w, format);
}

/* ---- rows, alternatives, repetitions ---- */

static struct expr elements(struct structural_work *w, const json_t *format,
                            const struct structural_stops *ends, bool any)
{
    const json_t *list = structural_list_of(w, format, "elements"), *each;
    struct expr all = expr_rx(any ? RX_NONE : RX_EMPTY);
    size_t i;
    if (list && json_array_size(list) == 0)
        structural_fail(w, -EINVAL, "elements is empty");
    json_array_foreach(list, i, each) {
        if (w->error)
            break;
        size_t before = structural_enter(w, ".elements[%zu]", i);
        struct expr one = format_of(w, each, ends);
        structural_leave(w, before);
        all = !any ? expr_cat(w->b, all, one) : i == 0 ? one : expr_or(w->b, all, one);
    }
    return all;
}

static struct expr sequence(struct structural_work *w, const json_t *format,
                            const struct structural_stops *ends)
{
    return elements(w, format, ends, false);
}

static struct expr any_of(struct structural_work *w, const json_t *format,
                          const struct structural_stops *ends)
{
    return elements(w, format, ends, true);
}

static struct expr times(struct structural_work *w, struct expr p, uint32_t min, uint32_t max)
{
    return w->error ? structural_none() : expr_repeat(w->b, p, min, max);
}

static struct expr optional(struct structural_work *w, const json_t *format,
                            const struct structural_stops *ends)
{
    return times(w, member_format(w, format, "content", ends), 0, 1);
}

static struct expr star(struct structural_work *w, const json_t *format, const struct structural_stops *ends)
{
    return times(w, member_format(w, format, "content", ends), 0, RX_UNBOUNDED);
}

static struct expr plus(struct structural_work *w, const json_t *format, const struct structural_stops *ends)
{
    return times(w, member_format(w, format, "content", ends), 1, RX_UNBOUNDED);
}

static struct expr repeat(struct structural_work *w, const json_t *format,
                          const struct structural_stops *ends)
{
    const json_t *min = json_object_get(format, "min"), *max = json_object_get(format, "max");
    json_int_t low = json_integer_value(min), high = json_integer_value(max);
    if (!json_is_integer(min) || !json_is_integer(max) || low < 0 || high < -1 || (high >= 0 && high < low))
        structural_fail(w, -EINVAL, "min and max must be whole numbers, min at most max; max -1: no limit");
    else if (low > SCHEMA_ITEMS_MAX || high > SCHEMA_ITEMS_MAX)
        structural_fail(w, -E2BIG, "a repetition has a count above %d", SCHEMA_ITEMS_MAX);
    struct expr content = member_format(w, format, "content", ends);
    return times(w, content, w->error ? 0 : (uint32_t)low, high < 0 ? RX_UNBOUNDED : (uint32_t)high);
}

/* ---- tags ---- */

/* One of the ends; `stops` gets them. */
static struct expr tag_ends(struct structural_work *w, const json_t *value, struct structural_stops *ret)
{
    struct expr all = structural_none();
    size_t count = json_is_array(value) ? json_array_size(value) : 1;
    ret->count = 0;
    if (count == 0)
        structural_fail(w, -EINVAL, "end is empty");
    for (size_t i = 0; i < count && !w->error; i++) {
        struct slice text;
        if (!structural_tag_text(w, json_is_array(value) ? json_array_get(value, i) : value, "end", &text))
            break;
        struct expr one = structural_literal(w, text);
        all = i == 0 ? one : expr_or(w->b, all, one);
        structural_add_stop(w, ret, text);
    }
    return all;
}

static bool take_place(struct structural_work *w)
{
    if (++w->formats > STRUCTURAL_FORMATS_MAX)
        structural_fail(w, -E2BIG, "there are more than %d formats and tags", STRUCTURAL_FORMATS_MAX);
    return !w->error;
}

/* Content and end of a tag. The older form has a schema in place of the content. */
static struct expr tag_rest(struct structural_work *w, const json_t *tag)
{
    const json_t *schema = json_object_get(tag, "schema");
    bool older = !json_object_get(tag, "content") && schema;
    struct structural_stops ends;
    if (!structural_only(w, tag, older ? "begin schema end" : "begin content end"))
        return structural_none();
    struct expr end = tag_ends(w, json_object_get(tag, "end"), &ends);
    if (w->error)
        return end;
    size_t before = structural_enter(w, ".schema");
    struct expr content = older ? json_value(w, schema) : structural_none();
    structural_leave(w, before);
    if (!older)
        content = member_format(w, tag, "content", &ends);
    return w->error ? structural_none() : expr_cat(w->b, content, end);
}

static bool tag_begin(struct structural_work *w, const json_t *tag, struct slice *ret)
{
    const char *type = json_string_value(json_object_get(tag, "type"));
    if (!json_is_object(tag) || (type && strcmp(type, "tag") != 0))
        return structural_fail(w, -EINVAL, "a tag is an object with begin, content and end"), false;
    return take_place(w) && structural_tag_text(w, json_object_get(tag, "begin"), "begin", ret);
}

static struct expr whole_tag(struct structural_work *w, const json_t *tag)
{
    struct slice begin;
    if (!tag_begin(w, tag, &begin))
        return structural_none();
    struct expr rest = tag_rest(w, tag);
    return w->error ? rest : expr_cat(w->b, structural_literal(w, begin), rest);
}

static struct expr tag(struct structural_work *w, const json_t *format, const struct structural_stops *ends)
{
    (void)ends;
    return whole_tag(w, format);
}

/* One of the tags. */
static struct expr one_tag(struct structural_work *w, const json_t *tags)
{
    struct expr all = structural_none();
    size_t i;
    json_t *each;
    json_array_foreach(tags, i, each) {
        if (w->error)
            break;
        size_t before = structural_enter(w, ".%s[%zu]", w->list, i);
        struct expr one = whole_tag(w, each);
        structural_leave(w, before);
        all = i == 0 ? one : expr_or(w->b, all, one);
    }
    return all;
}

static const json_t *tags_of(struct structural_work *w, const json_t *format)
{
    const json_t *tags = structural_list_of(w, format, "tags");
    if (tags && json_array_size(tags) == 0)
        structural_fail(w, -EINVAL, "tags is empty");
    return w->error ? NULL : tags;
}

static struct expr tags_with_separator(struct structural_work *w, const json_t *format,
                                       const struct structural_stops *ends)
{
    const json_t *tags = tags_of(w, format);
    bool some = structural_flag_of(w, format, "at_least_one", false);
    bool one = structural_flag_of(w, format, "stop_after_first", false);
    struct slice separator;
    (void)ends;
    if (w->error || !structural_text_of(w, format, "separator", &separator))
        return structural_none();
    struct expr first = one_tag(w, tags);
    if (w->error)
        return first;
    struct expr more = times(w, expr_cat(w->b, structural_literal(w, separator), first), 0, RX_UNBOUNDED);
    struct expr all = one ? first : expr_cat(w->b, first, more);
    return some ? all : expr_or(w->b, expr_rx(RX_EMPTY), all);
}

/* ---- text with triggers ---- */

/* Free text up to a trigger. `stops`: all triggers, excluded texts, and the ends of the tag around. */
struct scan {
    struct structural_stops stops;
    const struct structural_stops *ends;
    struct expr ways; /* a trigger, with the text before it and the tag after it */
    bool some;
};

static struct expr text_before(struct structural_work *w, const struct scan *s, struct slice trigger)
{
    return expr_rx(structural_free_text(w, &s->stops, &trigger, 1));
}

static struct expr last_text(struct structural_work *w, const struct scan *s)
{
    return expr_rx(
        structural_free_text(w, &s->stops, s->ends ? s->ends->all : NULL, s->ends ? s->ends->count : 0));
}

static void add_way(struct structural_work *w, struct scan *s, struct expr way)
{
    if (w->error)
        return;
    s->ways = s->some ? expr_or(w->b, s->ways, way) : way;
    s->some = true;
}

/* Ways in turn, with free text between them and after them. */
static struct expr turns(struct structural_work *w, const struct scan *s, bool loop)
{
    if (w->error)
        return structural_none();
    struct expr text = last_text(w, s);
    if (!loop)
        return s->some ? expr_or(w->b, text, s->ways) : text;
    return s->some ? expr_cat(w->b, times(w, s->ways, 0, RX_UNBOUNDED), text) : text;
}

static struct slice text_at(const json_t *list, size_t i)
{
    const json_t *each = json_array_get(list, i);
    return (struct slice){json_string_value(each), json_string_length(each)};
}

/* Each tag begins with exactly one trigger. */
static void check_begins(struct structural_work *w, const json_t *tags, const json_t *triggers)
{
    size_t i;
    json_t *each;
    json_array_foreach(tags, i, each) {
        struct slice begin;
        uint32_t found = 0;
        size_t before = structural_enter(w, ".%s[%zu]", w->list, i);
        if (w->error || !tag_begin(w, each, &begin))
            return;
        for (size_t k = 0; k < json_array_size(triggers); k++)
            found += slice_starts(begin, text_at(triggers, k));
        if (found != 1)
            structural_fail(w, -EINVAL, "its begin matches %s",
                            found ? "more than one trigger" : "no trigger");
        structural_leave(w, before);
    }
}

/* A token has no prefix as text, so a trigger within one is the whole begin. */
static bool splits(const struct structural_work *w, struct slice trigger, struct slice begin)
{
    return !structural_has_token(w, trigger) && !structural_has_token(w, begin);
}

/* The tags of one trigger. */
static void add_trigger(struct structural_work *w, struct scan *s, const json_t *tags, struct slice trigger)
{
    struct expr rests = structural_none(), text = text_before(w, s, trigger);
    bool some = false;
    size_t i;
    json_t *each;
    json_array_foreach(tags, i, each) {
        struct slice begin;
        if (w->error || !structural_tag_text(w, json_object_get(each, "begin"), "begin", &begin))
            return;
        if (!slice_starts(begin, trigger))
            continue;
        size_t before = structural_enter(w, ".%s[%zu]", w->list, i);
        struct expr rest = tag_rest(w, each);
        structural_leave(w, before);
        if (w->error)
            return;
        if (!splits(w, trigger, begin)) {
            add_way(w, s, expr_cat(w->b, text, expr_cat(w->b, structural_literal(w, begin), rest)));
            continue;
        }
        struct slice more = slice_sub(begin, trigger.len, begin.len);
        struct expr one = expr_cat(w->b, structural_literal(w, more), rest);
        rests = some ? expr_or(w->b, rests, one) : one;
        some = true;
    }
    if (some)
        add_way(w, s, expr_cat(w->b, expr_cat(w->b, text, structural_literal(w, trigger)), rests));
}

static bool read_triggers(struct structural_work *w, const json_t *format, struct scan *s)
{
    const json_t *triggers = structural_list_of(w, format, "triggers"), *each;
    struct slice text;
    size_t i;
    if (triggers && json_array_size(triggers) == 0)
        structural_fail(w, -EINVAL, "triggers is empty");
    json_array_foreach(triggers, i, each) {
        if (w->error || !structural_is_text(w, each, "a trigger", &text))
            break;
        if (text.len == 0)
            structural_fail(w, -EINVAL, "a trigger is empty");
        structural_add_stop(w, &s->stops, text);
    }
    return !w->error;
}

static struct expr triggered(struct structural_work *w, const json_t *format, const json_t *tags,
                             const struct structural_stops *ends)
{
    const json_t *triggers = json_object_get(format, "triggers");
    struct scan s = {.ends = ends, .ways = structural_none()};
    bool some = structural_flag_of(w, format, "at_least_one", false);
    bool one = structural_flag_of(w, format, "stop_after_first", false);
    if (!structural_excludes(w, format, ends, &s.stops) || !read_triggers(w, format, &s))
        return structural_none();
    struct expr first = some ? one_tag(w, tags) : expr_rx(RX_EMPTY);
    check_begins(w, tags, triggers);
    if (some && one)
        return first;
    for (size_t i = 0; i < json_array_size(triggers) && !w->error; i++)
        add_trigger(w, &s, tags, text_at(triggers, i));
    struct expr rest = turns(w, &s, !one);
    return w->error ? rest : expr_cat(w->b, first, rest);
}

static struct expr triggered_tags(struct structural_work *w, const json_t *format,
                                  const struct structural_stops *ends)
{
    const json_t *tags = tags_of(w, format);
    return tags ? triggered(w, format, tags, ends) : structural_none();
}

static struct expr dispatch(struct structural_work *w, const json_t *format,
                            const struct structural_stops *ends)
{
    const json_t *rules = structural_list_of(w, format, "rules"), *rule;
    struct scan s = {.ends = ends, .ways = structural_none()};
    struct slice pattern;
    size_t i;
    if (!rules || !structural_excludes(w, format, ends, &s.stops))
        return structural_none();
    json_array_foreach(rules, i, rule) {
        if (w->error || !structural_is_text(w, json_array_get(rule, 0), "the text of a rule", &pattern))
            break;
        if (pattern.len == 0 || json_array_size(rule) != 2)
            structural_fail(w, -EINVAL, "a rule is a text that is not empty and a format");
        structural_add_stop(w, &s.stops, pattern);
    }
    json_array_foreach(rules, i, rule) {
        if (w->error)
            break;
        size_t before = structural_enter(w, ".rules[%zu]", i);
        struct expr content = format_of(w, json_array_get(rule, 1), ends);
        structural_leave(w, before);
        pattern = text_at(rule, 0);
        if (!w->error)
            add_way(w, &s,
                    expr_cat(w->b, text_before(w, &s, pattern),
                             expr_cat(w->b, structural_literal(w, pattern), content)));
    }
    return turns(w, &s, structural_flag_of(w, format, "loop", true));
}

/* ---- the whole ---- */

static const struct format {
    const char *type, *members;
    struct expr (*read)(struct structural_work *w, const json_t *format, const struct structural_stops *ends);
} formats[] = {
    {"const_string", "value", const_string},
    {"json_schema", "json_schema style parsing_type", json_schema},
    {"regex", "pattern", regex},
    {"grammar", "grammar", grammar},
    {"any_text", "excludes excluded_str", any_text},
    {"token", "token", token},
    {"sequence", "elements", sequence},
    {"or", "elements", any_of},
    {"optional", "content", optional},
    {"star", "content", star},
    {"plus", "content", plus},
    {"repeat", "min max content", repeat},
    {"tag", "begin content end", tag},
    {"triggered_tags", "triggers tags at_least_one stop_after_first excludes", triggered_tags},
    {"tags_with_separator", "tags separator at_least_one stop_after_first", tags_with_separator},
    {"dispatch", "rules loop excludes", dispatch},
};

static const struct format *find_format(struct structural_work *w, const json_t *format)
{
    const char *type = json_string_value(json_object_get(format, "type"));
    if (!type)
        return structural_fail(w, -EINVAL, "a format is an object with a \"type\""), NULL;
    for (size_t i = 0; i < COUNT_OF(formats); i++)
        if (strcmp(formats[i].type, type) == 0)
            return &formats[i];
    structural_fail(w, -ENOTSUP, "the format \"%.40s\" is not supported", type);
    return NULL;
}

static struct expr format_of(struct structural_work *w, const json_t *format,
                             const struct structural_stops *ends)
{
    struct expr ret = structural_none();
    const struct format *f = w->error || !take_place(w) ? NULL : find_format(w, format);
    if (f && ++w->depth > STRUCTURAL_DEPTH_MAX)
        structural_fail(w, -E2BIG, "formats are nested more than %d deep", STRUCTURAL_DEPTH_MAX);
    if (!f || !structural_only(w, format, f->members))
        return ret;
    ret = f->read(w, format, ends);
    ASSERT(w->depth > 0);
    w->depth--;
    return w->error ? structural_none() : ret;
}

static struct expr whole(struct structural_work *w, const json_t *source)
{
    const char *type = json_string_value(json_object_get(source, "type"));
    const json_t *older = json_object_get(source, "structures");
    w->list = older ? "structures" : "tags";
    if (!json_is_object(source) || (type && strcmp(type, "structural_tag") != 0)) {
        structural_fail(w, -EINVAL, "an object of type \"structural_tag\" is needed");
    } else if (older && structural_only(w, source, "structures triggers")) {
        if (!json_is_array(older) || json_array_size(older) == 0)
            structural_fail(w, -EINVAL, "structures must be a list that is not empty");
        return w->error ? structural_none() : triggered(w, source, older, NULL);
    } else if (!older && structural_only(w, source, "format")) {
        structural_enter(w, ".format");
        return format_of(w, json_object_get(source, "format"), NULL);
    }
    return structural_none();
}

int structural_compile(struct grammar_builder *b, const json_t *source, const struct schema_opts *opts,
                       const struct structural_tokens *tokens, sym_id *ret, struct err *e)
{
    struct structural_work w = {.b = b, .s = grammar_rx(b), .opts = opts, .tokens = tokens, .e = e};
    structural_enter(&w, "structural_tag");
    struct expr all = whole(&w, source);
    if (w.error)
        return w.error;
    bool empty = all.regular && all.rx == RX_EMPTY;
    sym_id sym = empty ? 0 : expr_symbol(b, all);
    *ret = grammar_rule(b);
    grammar_alternative(b, *ret, &sym, empty ? 0 : 1);
    return 0;
}
