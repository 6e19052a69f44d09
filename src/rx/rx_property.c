/* rx_property.c - general categories of Unicode, from utf8proc's table. */
#include "rx/rx_property.h"

#include "rx/rx.h"

#include "base/arena.h"
#include "base/check.h"
#include "base/slice.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <utf8proc.h>

enum { CODE_LAST = 0x10FFFF, SURROGATE_FIRST = 0xD800, SURROGATE_LAST = 0xDFFF, RUNS_MAX = 6000 };

bool rx_set_add(struct arena *a, struct rx_set *set, uint32_t first, uint32_t last)
{
    ASSERT(first <= last && last <= CODE_LAST);
    if (set->count == set->room) {
        uint32_t room = set->room ? set->room * 2 : 8;
        struct rx_range *more = ARENA_ARRAY(a, struct rx_range, room);
        if (!more)
            return false;
        if (set->count)
            memcpy(more, set->at, set->count * sizeof(*more));
        set->at = more;
        set->room = room;
    }
    set->at[set->count++] = (struct rx_range){first, last};
    return true;
}

/* Sorted runs merge upwards; sets of classes are short or nearly sorted. */
static void sort_ranges(struct rx_range *at, uint32_t count)
{
    for (uint32_t gap = count / 2; gap > 0; gap /= 2)
        for (uint32_t i = gap; i < count; i++) {
            struct rx_range x = at[i];
            uint32_t k = i;
            for (; k >= gap && at[k - gap].first > x.first; k -= gap)
                at[k] = at[k - gap];
            at[k] = x;
        }
}

void rx_set_normalize(struct rx_set *set)
{
    uint32_t kept = 0;
    sort_ranges(set->at, set->count);
    for (uint32_t i = 0; i < set->count; i++) {
        struct rx_range r = set->at[i];
        if (kept && r.first <= set->at[kept - 1].last + 1)
            set->at[kept - 1].last = MAX_OF(set->at[kept - 1].last, r.last);
        else
            set->at[kept++] = r;
    }
    set->count = kept;
}

/* All but the set and the surrogates. */
bool rx_set_complement(struct arena *a, struct rx_set *set)
{
    struct rx_set made = {0};
    uint32_t next = 0;
    if (!rx_set_add(a, set, SURROGATE_FIRST, SURROGATE_LAST))
        return false;
    rx_set_normalize(set);
    for (uint32_t i = 0; i < set->count; i++) {
        if (set->at[i].first > next && !rx_set_add(a, &made, next, set->at[i].first - 1))
            return false;
        next = set->at[i].last + 1;
    }
    if (next <= CODE_LAST && !rx_set_add(a, &made, next, CODE_LAST))
        return false;
    *set = made;
    return true;
}

static const struct {
    const char *brief, *name;
} categories[] = {
    {"L", "Letter"},
    {"Lu", "Uppercase_Letter"},
    {"Ll", "Lowercase_Letter"},
    {"Lt", "Titlecase_Letter"},
    {"LC", "Cased_Letter"},
    {"Lm", "Modifier_Letter"},
    {"Lo", "Other_Letter"},
    {"M", "Mark"},
    {"Mn", "Nonspacing_Mark"},
    {"Mc", "Spacing_Mark"},
    {"Me", "Enclosing_Mark"},
    {"N", "Number"},
    {"Nd", "Decimal_Number"},
    {"Nl", "Letter_Number"},
    {"No", "Other_Number"},
    {"P", "Punctuation"},
    {"Pc", "Connector_Punctuation"},
    {"Pd", "Dash_Punctuation"},
    {"Ps", "Open_Punctuation"},
    {"Pe", "Close_Punctuation"},
    {"Pi", "Initial_Punctuation"},
    {"Pf", "Final_Punctuation"},
    {"Po", "Other_Punctuation"},
    {"S", "Symbol"},
    {"Sm", "Math_Symbol"},
    {"Sc", "Currency_Symbol"},
    {"Sk", "Modifier_Symbol"},
    {"So", "Other_Symbol"},
    {"Z", "Separator"},
    {"Zs", "Space_Separator"},
    {"Zl", "Line_Separator"},
    {"Zp", "Paragraph_Separator"},
    {"C", "Other"},
    {"Cc", "Control"},
    {"Cf", "Format"},
    {"Co", "Private_Use"},
    {"Cn", "Unassigned"},
};

/* Runs of code points of one category: looking at all code points for each class would take milliseconds. */
static struct {
    uint32_t first; /* up to the next one's first */
    const char *category;
} runs[RUNS_MAX];
static uint32_t run_count;
static pthread_once_t runs_once = PTHREAD_ONCE_INIT;

static void find_runs(void)
{
    const char *before = NULL;
    for (uint32_t code = 0; code <= CODE_LAST; code++) {
        const char *category = utf8proc_category_string((utf8proc_int32_t)code);
        if (before && strcmp(before, category) == 0)
            continue;
        ASSERT(run_count < RUNS_MAX);
        runs[run_count].first = code;
        runs[run_count++].category = before = category;
    }
}

static bool in_category(const char *has, const char *brief)
{
    if (strcmp(has, "Cs") == 0)
        return false;
    if (brief[1] == 'C')
        return has[0] == 'L' && (has[1] == 'u' || has[1] == 'l' || has[1] == 't');
    return has[0] == brief[0] && (brief[1] == 0 || has[1] == brief[1]);
}

static int add_all(struct arena *a, struct rx_set *set, const char *brief)
{
    pthread_once(&runs_once, find_runs);
    ASSERT(run_count > 0);
    for (uint32_t i = 0; i < run_count; i++) {
        uint32_t last = i + 1 < run_count ? runs[i + 1].first - 1 : CODE_LAST;
        if (in_category(runs[i].category, brief) && !rx_set_add(a, set, runs[i].first, last))
            return -ENOMEM;
    }
    return 0;
}

int rx_set_add_category(struct arena *a, struct rx_set *set, struct slice name)
{
    static const struct slice heads[] = {{"gc=", 3}, {"General_Category=", 17}};
    for (size_t i = 0; i < COUNT_OF(heads); i++)
        if (slice_starts(name, heads[i]))
            name = slice_sub(name, heads[i].len, name.len);
    for (size_t i = 0; i < COUNT_OF(categories); i++)
        if (slice_eq(name, slice_of(categories[i].brief)) || slice_eq(name, slice_of(categories[i].name)))
            return add_all(a, set, categories[i].brief);
    if (slice_eq(name, SLICE("Any")))
        return rx_set_add(a, set, 0, SURROGATE_FIRST - 1) && rx_set_add(a, set, SURROGATE_LAST + 1, CODE_LAST)
                   ? 0
                   : -ENOMEM;
    if (slice_eq(name, SLICE("ASCII")))
        return rx_set_add(a, set, 0, 0x7F) ? 0 : -ENOMEM;
    return -EINVAL;
}
