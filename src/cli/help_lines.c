/* help_lines.c - a word goes to the next line when the line has no place for it. */
#include "cli/help_lines.h"

#include "base/check.h"
#include "base/slice.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

unsigned terminal_columns(FILE *f)
{
    const char *given = getenv("COLUMNS");
    struct winsize size;
    uint64_t columns;
    if (given && slice_u64(slice_of(given), 10000, &columns) && columns > 0)
        return (unsigned)columns;
    return ioctl(fileno(f), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : HELP_WIDTH_MAX;
}

unsigned help_width(FILE *f)
{
    return MIN_OF(MAX_OF(terminal_columns(f), (unsigned)HELP_WIDTH_MIN), (unsigned)HELP_WIDTH_MAX);
}

void help_line(struct help_lines *l, unsigned indent)
{
    fprintf(l->f, "\n%*s", (int)indent, "");
    l->column = indent;
}

void help_words(struct help_lines *l, unsigned indent, const char *text)
{
    while (*(text += strspn(text, " \n"))) {
        unsigned len = (unsigned)strcspn(text, " \n"), whole = (unsigned)strcspn(text, "]") + 1;
        if (text[0] == '[' && indent + whole <= l->width)
            len = whole;
        bool first = l->column == indent;
        if (!first && l->column + 1 + len > l->width) {
            help_line(l, indent);
            first = true;
        }
        fprintf(l->f, "%s%.*s", first ? "" : " ", (int)len, text);
        l->column += len + !first;
        text += len;
    }
}

void help_paragraph(struct help_lines *l, const char *text)
{
    l->column = 0;
    help_words(l, 0, text);
    fputc('\n', l->f);
}

/* Bytes up to the next blank outside quotes. */
static unsigned shell_word(const char *text)
{
    char quote = 0;
    unsigned len = 0;
    for (; text[len] && (text[len] != ' ' || quote); len++)
        if (quote ? text[len] == quote : text[len] == '"' || text[len] == '\'')
            quote = quote ? 0 : text[len];
    return len;
}

/* Bytes of a word, and of its value if it is an option. */
static unsigned shell_unit(const char *text)
{
    const unsigned len = shell_word(text);
    if (strncmp(text, "--", 2) != 0 || text[len] != ' ' || strchr(" -|<>", text[len + 1]))
        return len;
    return len + 1 + shell_word(text + len + 1);
}

void help_shell(struct help_lines *l, unsigned indent, const char *command)
{
    const bool whole = indent + strlen(command) <= l->width;
    fprintf(l->f, "%*s", (int)indent, "");
    l->column = indent;
    if (whole) {
        fputs(command, l->f);
        return;
    }
    for (bool first = true; *(command += strspn(command, " ")); first = false) {
        const unsigned len = shell_unit(command), rest = command[len] ? 2 : 0; /* " \\" */
        if (!first && l->column + 1 + len + rest > l->width) {
            fputs(" \\", l->f);
            help_line(l, indent + 4);
            first = true;
        }
        fprintf(l->f, "%s%.*s", first ? "" : " ", (int)len, command);
        l->column += len + !first;
        command += len;
    }
}
