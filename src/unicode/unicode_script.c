/* unicode_script.c - one table per script; scripts that no tokenizer of the supported families names have
 * none. */
#include "unicode/unicode_script.h"

#include "unicode/code_range.h"

#include "base/check.h"

static const struct code_range han[] = {
    {0x2E80, 0x2E99, 0},   {0x2E9B, 0x2EF3, 0},   {0x2F00, 0x2FD5, 0},   {0x3005, 0x3005, 0},
    {0x3007, 0x3007, 0},   {0x3021, 0x3029, 0},   {0x3038, 0x303B, 0},   {0x3400, 0x4DBF, 0},
    {0x4E00, 0x9FFF, 0},   {0xF900, 0xFA6D, 0},   {0xFA70, 0xFAD9, 0},   {0x16FE2, 0x16FE3, 0},
    {0x16FF0, 0x16FF1, 0}, {0x20000, 0x2A6DF, 0}, {0x2A700, 0x2B739, 0}, {0x2B740, 0x2B81D, 0},
    {0x2B820, 0x2CEA1, 0}, {0x2CEB0, 0x2EBE0, 0}, {0x2EBF0, 0x2EE5D, 0}, {0x2F800, 0x2FA1D, 0},
    {0x30000, 0x3134A, 0}, {0x31350, 0x323AF, 0}};
static const struct code_range hiragana[] = {{0x3041, 0x3096, 0},   {0x309D, 0x309F, 0},
                                             {0x1B001, 0x1B11F, 0}, {0x1B132, 0x1B132, 0},
                                             {0x1B150, 0x1B152, 0}, {0x1F200, 0x1F200, 0}};
static const struct code_range katakana[] = {
    {0x30A1, 0x30FA, 0},   {0x30FD, 0x30FF, 0},   {0x31F0, 0x31FF, 0},   {0x32D0, 0x32FE, 0},
    {0x3300, 0x3357, 0},   {0xFF66, 0xFF6F, 0},   {0xFF71, 0xFF9D, 0},   {0x1AFF0, 0x1AFF3, 0},
    {0x1AFF5, 0x1AFFB, 0}, {0x1AFFD, 0x1AFFE, 0}, {0x1B000, 0x1B000, 0}, {0x1B120, 0x1B122, 0},
    {0x1B155, 0x1B155, 0}, {0x1B164, 0x1B167, 0}};
static const struct code_range hangul[] = {
    {0x1100, 0x11FF, 0}, {0x302E, 0x302F, 0}, {0x3131, 0x318E, 0}, {0x3200, 0x321E, 0}, {0x3260, 0x327E, 0},
    {0xA960, 0xA97C, 0}, {0xAC00, 0xD7A3, 0}, {0xD7B0, 0xD7C6, 0}, {0xD7CB, 0xD7FB, 0}, {0xFFA0, 0xFFBE, 0},
    {0xFFC2, 0xFFC7, 0}, {0xFFCA, 0xFFCF, 0}, {0xFFD2, 0xFFD7, 0}, {0xFFDA, 0xFFDC, 0}};

static const struct {
    struct slice name;
    const struct code_range *ranges;
    size_t count;
} scripts[UNICODE_SCRIPTS] = {[UNICODE_HAN] = {SLICE("Han"), han, COUNT_OF(han)},
                              [UNICODE_HIRAGANA] = {SLICE("Hiragana"), hiragana, COUNT_OF(hiragana)},
                              [UNICODE_KATAKANA] = {SLICE("Katakana"), katakana, COUNT_OF(katakana)},
                              [UNICODE_HANGUL] = {SLICE("Hangul"), hangul, COUNT_OF(hangul)}};

enum unicode_script unicode_script_named(struct slice name)
{
    for (unsigned i = UNICODE_NO_SCRIPT + 1; i < UNICODE_SCRIPTS; i++)
        if (slice_eq(name, scripts[i].name))
            return (enum unicode_script)i;
    return UNICODE_NO_SCRIPT;
}

bool unicode_script_has(enum unicode_script script, uint32_t code)
{
    ASSERT(script > UNICODE_NO_SCRIPT && script < UNICODE_SCRIPTS);
    return code_range_find(scripts[script].ranges, scripts[script].count, code) != NULL;
}
