/* terminal.c - a filter of one character at a time; the text is valid UTF-8, so a control character is one
 * byte below 0x20, 0x7f, or 0xc2 and a byte below 0xa0. */
#include "cli/terminal.h"

#include "cli/output.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool terminal_is(FILE *f)
{
    return isatty(fileno(f)) == 1;
}

bool terminal_has_colours(FILE *f)
{
    const char *term = getenv("TERM"), *no = getenv("NO_COLOR");
    return terminal_is(f) && term && strcmp(term, "dumb") != 0 && !(no && no[0]);
}

/* Bytes of the control character at text.ptr[at]; 0: not a control character. */
static size_t control_len(struct slice text, size_t at)
{
    unsigned char c = (unsigned char)text.ptr[at];
    if (c == 0xc2 && at + 1 < text.len && (unsigned char)text.ptr[at + 1] < 0xa0)
        return 2;
    return (c < 0x20 && c != '\n' && c != '\t') || c == 0x7f;
}

void terminal_write(FILE *f, struct slice text)
{
    size_t from = 0;
    for (size_t i = 0; terminal_is(f) && i < text.len;) {
        size_t n = control_len(text, i);
        if (n) {
            fwrite(text.ptr + from, 1, i - from, f);
            fputs("\xef\xbf\xbd", f);
            from = i + n;
        }
        i += n ? n : 1;
    }
    if (from < text.len)
        fwrite(text.ptr + from, 1, text.len - from, f);
    f == stdout ? output_flush() : fflush(f);
}
