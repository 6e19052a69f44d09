/* unicode_script.h - the scripts that the regexes of tokenizers name, as \p{Han}.
 *
 * Ranges are those of Unicode 16, as in the regex engine of the `tokenizers` library. Pure; any thread. */
#ifndef PLATEAU_UNICODE_UNICODE_SCRIPT_H
#define PLATEAU_UNICODE_UNICODE_SCRIPT_H

#include "base/slice.h"

enum unicode_script {
    UNICODE_NO_SCRIPT,
    UNICODE_HAN,
    UNICODE_HIRAGANA,
    UNICODE_KATAKANA,
    UNICODE_HANGUL,
    UNICODE_SCRIPTS
};

/* UNICODE_NO_SCRIPT: the name is not known. */
enum unicode_script unicode_script_named(struct slice name);
bool unicode_script_has(enum unicode_script script, uint32_t code);

#endif
