/* unicode.c - classes and NFC over the tables of utf8proc.
 *
 * Classes come from the general category. utf8proc 2.8 (Debian 12) has Unicode 15.0; the regex engine of the
 * `tokenizers` library has 16.0. unicode_tables.h has the difference, consulted only for code points that
 * utf8proc calls unassigned, so a newer utf8proc makes it idle rather than wrong.
 *
 * NFC works in segments. A segment starts before a character that no earlier one can change: a starter that
 * is its own normal form and never the second half of a composition. Almost every character of almost every
 * text is one of these, and is copied; only a segment of several characters is decomposed, ordered and
 * composed. utf8proc's own ordering exchanges neighbours and so is quadratic in the length of a run of marks,
 * which a client chooses; ours counts by combining class, which is linear. `unicode_nfc_inert` lists the
 * marks younger than the normaliser of `tokenizers` (Unicode 9): it neither orders nor composes them. */
#include "text/unicode.h"

#include "base/check.h"
#include "text/unicode_tables.h"
#include "text/utf8.h"

#include <errno.h>
#include <utf8proc.h>

static const struct code_range *code_range_find(const struct code_range *ranges, size_t count, uint32_t code)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (ranges[middle].last < code)
            low = middle + 1;
        else
            high = middle;
    }
    return low < count && ranges[low].first <= code ? &ranges[low] : NULL;
}

static bool unicode_is_space(uint32_t code)
{
    if (code < 0x1680)
        return (code >= 0x09 && code <= 0x0D) || code == 0x20 || code == 0x85 || code == 0xA0;
    return code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 ||
           code == 0x202F || code == 0x205F || code == 0x3000;
}

static enum unicode_class class_ascii(uint32_t code)
{
    if ((code | 0x20) - 'a' < 26)
        return UNICODE_LETTER;
    if (code - '0' < 10)
        return UNICODE_NUMBER;
    return unicode_is_space(code) ? UNICODE_SPACE : UNICODE_OTHER;
}

unsigned unicode_general_category(uint32_t code)
{
    if (code > 0x10FFFF)
        return UTF8PROC_CATEGORY_CN;
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)code);
    if (category != UTF8PROC_CATEGORY_CN)
        return category;
    const struct code_range *newer = code_range_find(unicode_newer, COUNT_OF(unicode_newer), code);
    return newer ? newer->category : UTF8PROC_CATEGORY_CN;
}

enum unicode_class unicode_class(uint32_t code)
{
    if (code < 0x80)
        return class_ascii(code);
    if (unicode_is_space(code))
        return UNICODE_SPACE;
    unsigned category = unicode_general_category(code);
    if (category == UTF8PROC_CATEGORY_CN || category > UTF8PROC_CATEGORY_NO)
        return UNICODE_OTHER;
    if (category <= UTF8PROC_CATEGORY_LO)
        return UNICODE_LETTER;
    return category <= UTF8PROC_CATEGORY_ME ? UNICODE_MARK : UNICODE_NUMBER;
}

uint32_t unicode_categories_named(struct slice name)
{
    static const char letters[] = "CnLuLlLtLmLoMnMcMeNdNlNoPcPdPsPePiPfPoSmScSkSoZsZlZpCcCfCsCo";
    uint32_t found = 0;
    for (uint32_t i = 0; i < sizeof(letters) / 2; i++)
        if ((name.len == 1 || name.len == 2) && memcmp(letters + (size_t)2 * i, name.ptr, name.len) == 0)
            found |= 1u << i;
    return found;
}

bool unicode_is_punctuation(uint32_t code)
{
    if (code < 0x80)
        return code > 0x20 && code < 0x7F && class_ascii(code) == UNICODE_OTHER;
    unsigned category = unicode_general_category(code);
    if (code == 0x166D || code == 0x111C9)
        return true;
    return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO &&
           !code_range_find(unicode_newer_punctuation, COUNT_OF(unicode_newer_punctuation), code);
}

bool unicode_is_bert_accent(uint32_t code)
{
    if (code == 0x1734 || code == 0x1171E)
        return true;
    return code >= 0x300 && unicode_general_category(code) == UTF8PROC_CATEGORY_MN &&
           !code_range_find(unicode_newer_nonspacing, COUNT_OF(unicode_newer_nonspacing), code);
}

/* Symbols (So) with the property Other_Alphabetic; the marks that have it are words as marks. */
static bool unicode_is_alphabetic_symbol(uint32_t code)
{
    return (code >= 0x24B6 && code <= 0x24E9) || (code >= 0x1F130 && code <= 0x1F149) ||
           (code >= 0x1F150 && code <= 0x1F169) || (code >= 0x1F170 && code <= 0x1F189);
}

bool unicode_is_word(uint32_t code)
{
    enum unicode_class class = unicode_class(code);
    if (class == UNICODE_LETTER || class == UNICODE_MARK)
        return true;
    unsigned category = unicode_general_category(code);
    return category == UTF8PROC_CATEGORY_ND || category == UTF8PROC_CATEGORY_NL ||
           category == UTF8PROC_CATEGORY_PC || code == 0x200C || code == 0x200D ||
           unicode_is_alphabetic_symbol(code);
}

bool unicode_is_accent(uint32_t code)
{
    return unicode_class(code) == UNICODE_MARK &&
           !code_range_find(unicode_newer_marks, COUNT_OF(unicode_newer_marks), code);
}

bool unicode_is_bert_control(uint32_t code)
{
    unsigned category = unicode_general_category(code);
    bool newer = code == 0x890 || code == 0x891 || code == 0x8E2 || code == 0x110CD ||
                 (code >= 0x13430 && code <= 0x1343F);
    return !newer && (category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_CF ||
                      category == UTF8PROC_CATEGORY_CO);
}

unsigned unicode_lower(uint32_t code, uint32_t ret[2])
{
    static const struct {
        uint32_t first, last, lower;
        uint32_t step;
    } newer[] = {{0x1C89, 0x1C89, 0x1C8A, 1},    {0xA7CB, 0xA7CB, 0x264, 1},    {0xA7CC, 0xA7CE, 0xA7CD, 2},
                 {0xA7D2, 0xA7D4, 0xA7D3, 2},    {0xA7DA, 0xA7DA, 0xA7DB, 1},   {0xA7DC, 0xA7DC, 0x19B, 1},
                 {0x10D50, 0x10D65, 0x10D70, 1}, {0x16EA0, 0x16EB8, 0x16EBB, 1}};
    ret[0] = code;
    if (code == 0x130) {
        ret[0] = 'i';
        ret[1] = 0x307;
        return 2;
    }
    if (code < 0x80)
        ret[0] = code - 'A' < 26 ? code + 0x20 : code;
    else
        ret[0] = (uint32_t)utf8proc_tolower((utf8proc_int32_t)code);
    for (size_t i = 0; i < COUNT_OF(newer) && ret[0] == code; i++)
        if (code >= newer[i].first && code <= newer[i].last && (code - newer[i].first) % newer[i].step == 0)
            ret[0] = newer[i].lower + (code - newer[i].first);
    return 1;
}

/* ---- normalisation form C ---- */

#define NFC_EXPANSION_MAX 4 /* code points of the longest canonical decomposition */
#define NFC_OPTIONS       (UTF8PROC_STABLE | UTF8PROC_COMPOSE)

static bool nfc_is_inert(uint32_t code)
{
    return code_range_find(unicode_nfc_inert, COUNT_OF(unicode_nfc_inert), code) != NULL;
}

static unsigned nfc_class(utf8proc_int32_t code)
{
    unsigned class = (unsigned)utf8proc_get_property(code)->combining_class;
    return class && nfc_is_inert((uint32_t)code) ? 0 : class;
}

/* Canonical decomposition, in full. */
static size_t nfc_decompose(uint32_t code, utf8proc_int32_t ret[NFC_EXPANSION_MAX])
{
    int boundclass = 0;
    utf8proc_ssize_t count =
        utf8proc_decompose_char((utf8proc_int32_t)code, ret, NFC_EXPANSION_MAX, NFC_OPTIONS, &boundclass);
    ASSERT(count >= 1 && count <= NFC_EXPANSION_MAX);
    return (size_t)count;
}

/* True when text can be split before this character, and the parts normalised alone. False is always safe:
 * every second half of a composition is a mark or a Hangul vowel or final. */
static bool nfc_is_boundary(uint32_t code)
{
    if (code < 0x300 || (code >= 0x3400 && code <= 0x9FFF) || (code >= 0xAC00 && code <= 0xD7A3))
        return true;
    unsigned category = unicode_general_category(code);
    if (category >= UTF8PROC_CATEGORY_MN && category <= UTF8PROC_CATEGORY_ME)
        return nfc_is_inert(code);
    if (code >= 0x1160 && code <= 0x11FF)
        return false;
    utf8proc_int32_t parts[NFC_EXPANSION_MAX];
    size_t count = nfc_decompose(code, parts);
    if (count == 1 && parts[0] == (utf8proc_int32_t)code)
        return true;
    return utf8proc_normalize_utf32(parts, (utf8proc_ssize_t)count, NFC_OPTIONS) == 1 &&
           parts[0] == (utf8proc_int32_t)code;
}

/* Puts a run of non-starters in the order of their classes, stably. */
static void nfc_order_run(utf8proc_int32_t *codes, size_t count, utf8proc_int32_t *other)
{
    size_t at[256] = {0};
    for (size_t i = 0; i < count; i++)
        at[nfc_class(codes[i])]++;
    for (size_t class = 0, sum = 0; class < 256; class ++) {
        size_t here = at[class];
        at[class] = sum;
        sum += here;
    }
    for (size_t i = 0; i < count; i++)
        other[at[nfc_class(codes[i])]++] = codes[i];
    memcpy(codes, other, count * sizeof(*codes));
}

/* `other` has room for the longest run. */
static void nfc_order(utf8proc_int32_t *codes, size_t count, utf8proc_int32_t *other)
{
    for (size_t from = 0, end; from < count; from = end) {
        for (end = from; end < count && nfc_class(codes[end]) != 0;)
            end++;
        if (end - from > 1)
            nfc_order_run(codes + from, end - from, other);
        end += end == from;
    }
}

/* Normalises one segment to `out` and returns the bytes written, or -ENOMEM. */
static ssize_t nfc_segment(struct arena *scratch, struct slice s, const struct wanted *w, char *out)
{
    size_t mark = arena_mark(scratch);
    size_t room = s.len * 2; /* one byte stays one code point; two bytes and more become at most four */
    utf8proc_int32_t *codes = ARENA_ARRAY(scratch, utf8proc_int32_t, room);
    utf8proc_int32_t *other = ARENA_ARRAY(scratch, utf8proc_int32_t, room);
    ssize_t written = -ENOMEM;
    if (!codes || !other)
        goto done;
    size_t count = 0, look = 0;
    uint32_t code;
    for (size_t i = 0; i < s.len;) {
        if ((written = wanted_pass(w, i, &look)) < 0)
            goto done;
        i += utf8_next(s.ptr + i, &code);
        count += nfc_decompose(code, codes + count);
    }
    nfc_order(codes, count, other);
    if ((written = wanted_look(w)) < 0)
        goto done;
    utf8proc_ssize_t composed = utf8proc_normalize_utf32(codes, (utf8proc_ssize_t)count, NFC_OPTIONS);
    ASSERT(composed >= 0);
    written = 0;
    for (utf8proc_ssize_t i = 0; i < composed; i++)
        written += utf8_encode((uint32_t)codes[i], out + written);
done:
    arena_rewind(scratch, mark);
    return written;
}

/* End of the segment at `from`; *single: it is one character, already normal. SIZE_MAX: cancelled. */
static size_t nfc_segment_end(struct slice text, size_t from, const struct wanted *w, size_t *look,
                              bool *single)
{
    uint32_t code;
    size_t end = from + utf8_next(text.ptr + from, &code);
    *single = nfc_is_boundary(code);
    while (end < text.len) {
        if (wanted_pass(w, end, look) < 0)
            return SIZE_MAX;
        unsigned bytes = utf8_next(text.ptr + end, &code);
        if (nfc_is_boundary(code))
            break;
        *single = false;
        end += bytes;
    }
    return end;
}

/* Normalises the text from `from` on to out + from; the text before it is normal. Returns the whole length,
 * or an error. */
static ssize_t nfc_rest(struct arena *scratch, struct slice text, size_t from, const struct wanted *w,
                        char *out)
{
    size_t len = from, look = 0;
    bool single;
    for (size_t end; from < text.len; from = end) {
        end = nfc_segment_end(text, from, w, &look, &single);
        if (end == SIZE_MAX)
            return wanted_look(w);
        if (single) {
            memcpy(out + len, text.ptr + from, end - from);
            len += end - from;
            continue;
        }
        ssize_t written = nfc_segment(scratch, slice_sub(text, from, end - from), w, out + len);
        if (written < 0)
            return written;
        len += (size_t)written;
    }
    return (ssize_t)len;
}

int unicode_nfc(struct arena *scratch, struct slice text, const struct wanted *w, struct slice *ret)
{
    size_t from = 0, end = 0, look = 0;
    for (bool single = true; from < text.len; from = end) {
        end = nfc_segment_end(text, from, w, &look, &single);
        if (end == SIZE_MAX)
            return wanted_look(w);
        if (!single)
            break;
    }
    if (from >= text.len) {
        *ret = text;
        return 0;
    }
    size_t mark = arena_mark(scratch);
    char *out = arena_alloc_array(scratch, text.len, 3);
    if (!out)
        return -ENOMEM;
    memcpy(out, text.ptr, from);
    ssize_t len = nfc_rest(scratch, text, from, w, out);
    if (len < 0) {
        arena_rewind(scratch, mark);
        return (int)len;
    }
    *ret = (struct slice){out, (size_t)len};
    return 0;
}

/* ---- normalisation form D ---- */

/* U+11938 is younger than the normaliser of `tokenizers`. */
static size_t nfd_decompose(uint32_t code, utf8proc_int32_t ret[NFC_EXPANSION_MAX])
{
    if (code != 0x11938)
        return nfc_decompose(code, ret);
    ret[0] = (utf8proc_int32_t)code;
    return 1;
}

/* A character that stays as it is and that no mark before it passes. */
static bool nfd_is_boundary(uint32_t code)
{
    utf8proc_int32_t parts[NFC_EXPANSION_MAX];
    return code < 0xC0 || nfd_decompose(code, parts) == 0 || nfc_class(parts[0]) == 0;
}

static size_t nfd_segment_end(struct slice text, size_t from)
{
    uint32_t code;
    size_t end = from + utf8_next(text.ptr + from, &code);
    for (unsigned bytes; end < text.len; end += bytes) {
        bytes = utf8_next(text.ptr + end, &code);
        if (nfd_is_boundary(code))
            break;
    }
    return end;
}

static ssize_t nfd_segment(struct arena *scratch, struct slice s, char *out)
{
    size_t mark = arena_mark(scratch), room = s.len * 2, count = 0;
    utf8proc_int32_t small[64], *codes = small, *other = small + COUNT_OF(small) / 2;
    ssize_t written = 0;
    uint32_t code;
    if (room > COUNT_OF(small) / 2) {
        codes = ARENA_ARRAY(scratch, utf8proc_int32_t, room);
        other = ARENA_ARRAY(scratch, utf8proc_int32_t, room);
    }
    if (!codes || !other) {
        arena_rewind(scratch, mark);
        return -ENOMEM;
    }
    for (size_t i = 0; i < s.len;) {
        i += utf8_next(s.ptr + i, &code);
        count += nfd_decompose(code, codes + count);
    }
    nfc_order(codes, count, other);
    for (size_t i = 0; i < count; i++)
        written += utf8_encode((uint32_t)codes[i], out + written);
    arena_rewind(scratch, mark);
    return written;
}

int unicode_nfd(struct arena *scratch, struct slice text, const struct wanted *w, struct slice *ret)
{
    size_t mark = arena_mark(scratch), len = 0, look = 0;
    char *out = arena_alloc_array(scratch, text.len + 1, 3);
    ssize_t written = out ? 0 : -ENOMEM;
    for (size_t from = 0, end; from < text.len && written >= 0; from = end) {
        end = nfd_segment_end(text, from);
        written = wanted_pass(w, from, &look);
        if (written == 0)
            written = nfd_segment(scratch, slice_sub(text, from, end - from), out + len);
        len += written > 0 ? (size_t)written : 0;
    }
    if (written < 0) {
        arena_rewind(scratch, mark);
        return (int)written;
    }
    *ret = (struct slice){out, len};
    return 0;
}
