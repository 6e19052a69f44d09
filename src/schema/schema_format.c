/* schema_format.c - patterns, and formats as patterns. A format has only texts that its document allows;
 * where that allows more (years before 1000, leap seconds, lower-case t and z, quoted local parts), the rest
 * is left out. */
#include "schema/schema_work.h"

#include "base/check.h"
#include "base/err.h"
#include "rx/rx_parse.h"

#define DIGIT "[0-9]"
#define HEX   "[0-9A-Fa-f]"

#define DATE                                                                                                 \
    "(?:[1-9]" DIGIT "{3}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]" DIGIT                                        \
    "|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]" DIGIT "|30)|02-(?:0[1-9]|1" DIGIT "|2[0-8]))"                     \
    "|(?:[1-9]" DIGIT "(?:0[48]|[2468][048]|[13579][26])|(?:[2468][048]|[13579][26])00)-02-29)"
#define TIME                                                                                                 \
    "(?:[01]" DIGIT "|2[0-3]):[0-5]" DIGIT ":[0-5]" DIGIT "(?:\\." DIGIT "+)?(?:Z|[+-](?:[01]" DIGIT         \
    "|2[0-3]):[0-5]" DIGIT ")"

#define SPAN_DATE "(?:" DIGIT "+Y(?:" DIGIT "+M(?:" DIGIT "+D)?)?|" DIGIT "+M(?:" DIGIT "+D)?|" DIGIT "+D)"
#define SPAN_TIME "T(?:" DIGIT "+H(?:" DIGIT "+M(?:" DIGIT "+S)?)?|" DIGIT "+M(?:" DIGIT "+S)?|" DIGIT "+S)"

#define LABEL    "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#define HOSTNAME LABEL "(?:\\." LABEL ")*"
#define ATOM     "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"

#define OCTET "(?:25[0-5]|2[0-4]" DIGIT "|1" DIGIT "{2}|[1-9]?" DIGIT ")"
#define IPV4  "(?:" OCTET "\\.){3}" OCTET
#define H4    HEX "{1,4}"
#define IPV6                                                                                                 \
    "(?:(?:" H4 ":){7}" H4 "|(?:" H4 ":){1,7}:|(?:" H4 ":){1,6}:" H4 "|(?:" H4 ":){1,5}(?::" H4              \
    "){1,2}|(?:" H4 ":){1,4}(?::" H4 "){1,3}|(?:" H4 ":){1,3}(?::" H4 "){1,4}|(?:" H4 ":){1,2}(?::" H4       \
    "){1,5}|" H4 ":(?::" H4 "){1,6}|:(?:(?::" H4 "){1,7}|:)|(?:" H4 ":){6}" IPV4 "|::(?:" H4 ":){0,5}" IPV4  \
    "|" H4 "::(?:" H4 ":){0,4}" IPV4 "|(?:" H4 ":){2}:(?:" H4 ":){0,3}" IPV4 "|(?:" H4 ":){3}:(?:" H4        \
    ":){0,2}" IPV4 "|(?:" H4 ":){4}:(?:" H4 ":){0,1}" IPV4 "|(?:" H4 ":){5}:" IPV4 ")"

#define PERCENT "%" HEX "{2}"
#define NAMED   "A-Za-z0-9._~!$&'()*+,;="
#define PCHAR   "(?:[" NAMED ":@-]|" PERCENT ")"
#define QUERY   "(?:\\?(?:[" NAMED ":@/?-]|" PERCENT ")*)?(?:#(?:[" NAMED ":@/?-]|" PERCENT ")*)?"
#define AUTHORITY                                                                                            \
    "(?:(?:[" NAMED ":-]|" PERCENT ")*@)?(?:\\[" IPV6 "\\]|(?:[" NAMED "-]|" PERCENT ")*)(?::" DIGIT "*)?"
#define SEGMENTS "(?:/" PCHAR "*)*"
#define ABSOLUTE "//" AUTHORITY SEGMENTS "|/(?:" PCHAR "+" SEGMENTS ")?"
#define URI      "[A-Za-z][A-Za-z0-9+.-]*:(?:" ABSOLUTE "|" PCHAR "+" SEGMENTS "|)" QUERY
#define RELATIVE "(?:" ABSOLUTE "|(?:[" NAMED "@-]|" PERCENT ")+" SEGMENTS "|)" QUERY

#define POINTER "(?:/(?:[^~/]|~[01])*)*"

/* Label of a host name: no two hyphens as third and fourth character. Written without a complement, so that
 * the automaton sees at once that nothing can follow. */
#define ALNUM "[A-Za-z0-9]"
#define INNER "[A-Za-z0-9-]"
#define HOST_LABEL                                                                                           \
    ALNUM "(?:" ALNUM "|" INNER ALNUM "(?:" INNER "{0,59}" ALNUM ")?|" INNER "-" ALNUM "(?:" INNER           \
          "{0,58}" ALNUM ")?)?"

static const struct format {
    const char *name;
    const char *pattern; /* NULL: refused */
    const char *within;  /* a second pattern that must match */
} formats[] = {
    {"date", "^" DATE "$", NULL},
    {"time", "^" TIME "$", NULL},
    {"date-time", "^" DATE "T" TIME "$", NULL},
    {"duration", "^P(?:" SPAN_DATE "(?:" SPAN_TIME ")?|" SPAN_TIME "|" DIGIT "+W)$", NULL},
    {"email", "^" ATOM "(?:\\." ATOM ")*@" HOSTNAME "$", "^[^@]{1,64}@.{1,253}$"},
    {"hostname", "^" HOST_LABEL "(?:\\." HOST_LABEL ")*$", "^.{1,253}$"},
    {"ipv4", "^" IPV4 "$", NULL},
    {"ipv6", "^" IPV6 "$", NULL},
    {"uri", "^" URI "$", NULL},
    {"uri-reference", "^(?:" URI "|" RELATIVE ")$", NULL},
    {"uuid", "^" HEX "{8}-" HEX "{4}-" HEX "{4}-" HEX "{4}-" HEX "{12}$", NULL},
    {"json-pointer", "^" POINTER "$", NULL},
    {"relative-json-pointer", "^(?:0|[1-9]" DIGIT "*)(?:#|" POINTER ")$", NULL},
    {"idn-email", NULL, NULL},
    {"idn-hostname", NULL, NULL},
    {"iri", NULL, NULL},
    {"iri-reference", NULL, NULL},
    {"uri-template", NULL, NULL},
    {"regex", NULL, NULL},
};

struct schema_pattern {
    struct slice text;
    rx_id rx;
    struct schema_pattern *next;
};

rx_id schema_pattern_rx(struct schema_work *w, uint32_t node, const char *key, struct slice pattern)
{
    for (const struct schema_pattern *p = w->patterns; p; p = p->next)
        if (slice_eq(p->text, pattern))
            return p->rx;
    struct rx_parse_opts opts = {.search = true, .encode = json_text_encode, .encode_arg = &w->text};
    struct schema_pattern *p = schema_keep(w, sizeof(*p));
    struct err e = {{0}};
    rx_id rx = RX_NONE;
    if (!p)
        return RX_NONE;
    int r = rx_parse(w->s, pattern, &opts, &rx, &e);
    if (r < 0) {
        schema_fail(w, r == -EINVAL ? -ENOTSUP : r, node, "\"%s\": %s", key, e.text);
        return RX_NONE;
    }
    *p = (struct schema_pattern){pattern, rx, w->patterns};
    w->patterns = p;
    return rx;
}

enum schema_format_kind schema_format(struct schema_work *w, uint32_t node, struct slice name, rx_id *ret)
{
    const struct format *f = formats, *end = formats + COUNT_OF(formats);
    while (f < end && !slice_eq(slice_of(f->name), name))
        f++;
    if (f == end)
        return SCHEMA_FORMAT_NOTE;
    if (!f->pattern)
        return SCHEMA_FORMAT_REFUSED;
    rx_id rx = schema_pattern_rx(w, node, "format", slice_of(f->pattern));
    if (f->within)
        rx = rx_and(w->s, rx, schema_pattern_rx(w, node, "format", slice_of(f->within)));
    *ret = rx;
    return SCHEMA_FORMAT_KNOWN;
}
