/* chat_screen.c - colours are switched off again after every piece, so that the program leaves none at its
 * end. */
#include "cli/chat/chat_screen.h"

#include "cli/output.h"

#include <stdarg.h>

#define DIM   "\033[2m"
#define RED   "\033[31m"
#define PLAIN "\033[0m"

void chat_screen_init(struct chat_screen *s, bool hide_reasoning)
{
    *s = (struct chat_screen){.terminal = terminal_is(stdin) && terminal_is(stdout)};
    s->colours = s->terminal && terminal_has_colours(stdout);
    s->reasoning = s->terminal && !hide_reasoning;
}

static void print(struct chat_screen *s, const char *colour, struct slice text)
{
    if (text.len == 0)
        return;
    if (s->colours && colour)
        fputs(colour, stdout);
    terminal_write(stdout, text);
    if (s->colours && colour)
        fputs(PLAIN, stdout);
    output_flush();
    s->began = true;
    s->line_open = text.ptr[text.len - 1] != '\n';
}

/* Without colours a word says what it is. */
void chat_screen_reasoning(struct chat_screen *s, struct slice text)
{
    if (!s->reasoning || text.len == 0)
        return;
    if (!s->in_reasoning && !s->colours)
        fputs("(thinking) ", stdout);
    s->in_reasoning = true;
    print(s, DIM, text);
}

void chat_screen_content(struct chat_screen *s, struct slice text)
{
    if (s->in_reasoning && text.len) {
        chat_screen_end(s);
        fputc('\n', stdout);
    }
    print(s, NULL, text);
}

void chat_screen_end(struct chat_screen *s)
{
    if (s->line_open || !s->began)
        fputc('\n', stdout);
    output_flush();
    s->in_reasoning = s->began = s->line_open = false;
}

static void tell(struct chat_screen *s, const char *colour, const char *format, va_list ap)
{
    FILE *f = s->terminal ? stdout : stderr;
    char text[2048];
    fputs(!s->terminal ? "plateau: " : s->colours ? colour : "", f);
    vsnprintf(text, sizeof(text), format, ap);
    plain_printf(f, "%s", text);
    fputs(s->colours ? PLAIN "\n" : "\n", f);
    f == stdout ? output_flush() : fflush(f);
}

void chat_screen_note(struct chat_screen *s, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    tell(s, DIM, format, ap);
    va_end(ap);
}

void chat_screen_error(struct chat_screen *s, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    tell(s, RED, format, ap);
    va_end(ap);
}
