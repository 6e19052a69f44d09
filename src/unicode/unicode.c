/* unicode.c - classes over the tables of utf8proc.
 *
 * Classes come from the general category. utf8proc 2.8 (Debian 12) has Unicode 15.0; the regex engine of the
 * `tokenizers` library has 16.0. unicode_tables.h has the difference, consulted only for code points that
 * utf8proc calls unassigned, so a newer utf8proc makes it idle rather than wrong. */
#include "unicode/unicode.h"

#include "unicode/unicode_tables.h"

#include "base/check.h"

#include <utf8proc.h>

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
    /* Two letters were marks in Unicode 9. */
    return unicode_class(code) == UNICODE_MARK
               ? !code_range_find(unicode_newer_marks, COUNT_OF(unicode_newer_marks), code)
               : code == 0x1CF2 || code == 0x1CF3;
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
