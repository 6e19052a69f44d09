/* output.c - stdio remembers that a write failed, but not why: that is kept here, of the first failure. */
#include "cli/output.h"

#include "cli/help_lines.h"

#include "base/buf.h"
#include "base/json/json_out.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void output_begin(void)
{
    /* A descriptor for the other direction: what uses it gets EBADF, as without it. */
    static const int flags[] = {O_WRONLY, O_RDONLY, O_WRONLY};
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF && open("/dev/null", flags[fd]) < 0)
            return;
}

static int first_error;

static int note(int r)
{
    if (r != 0 && first_error == 0)
        first_error = errno ? errno : EIO;
    return r;
}

int output_flush(void)
{
    int r = note(fflush(stdout));
    return ferror(stdout) ? EOF : r;
}

int output_error(void)
{
    return first_error;
}

bool output_failed(void)
{
    return ferror(stdout) != 0 || first_error != 0;
}

int output_end(int status)
{
    note(fflush(stdout));
    bool failed = output_failed();
    if (failed && !first_error) {
        /* A write within printf() failed, and its reason is gone: one more byte fails for the same. */
        fputc('\n', stdout);
        note(fflush(stdout));
    }
    /* Some file systems report a full disk when the file is closed. */
    failed |= note(fclose(stdout)) != 0;
    if (!failed)
        return status;
    fprintf(stderr, "plateau: standard output could not be written%s%s\n", first_error ? ": " : "",
            first_error ? strerror(first_error) : "");
    return status ? status : 1;
}

/* --- a model's text on a terminal --- */

void output_json(struct json_out *j)
{
    json_end(j);
    buf_putc(j->buf, '\n');
    fwrite(j->buf->ptr, 1, j->buf->len, stdout);
}

bool terminal_is(FILE *f)
{
    return isatty(fileno(f)) == 1;
}

bool terminal_has_colours(FILE *f)
{
    const char *term = getenv("TERM"), *no = getenv("NO_COLOR");
    return terminal_is(f) && term && strcmp(term, "dumb") != 0 && !(no && no[0]);
}

/* The text is valid UTF-8, so a control character is one byte below 0x20, 0x7f, or 0xc2 and a byte below
 * 0xa0. Bytes of the control character at text.ptr[at]; 0: not a control character. */
static size_t control_len(struct slice text, size_t at)
{
    unsigned char c = (unsigned char)text.ptr[at];
    if (c == 0xc2 && at + 1 < text.len && (unsigned char)text.ptr[at + 1] < 0xa0)
        return 2;
    return (c < 0x20 && c != '\n' && c != '\t') || c == 0x7f;
}

static void plain_slice(FILE *f, struct slice text)
{
    for (size_t i = 0; i < text.len;) {
        const size_t n = control_len(text, i);
        if (n)
            fprintf(f, "\\x%02x", (unsigned char)text.ptr[i + n - 1]);
        else
            fputc(text.ptr[i], f);
        i += n ? n : 1;
    }
}

void plain_write(FILE *f, const char *text)
{
    plain_slice(f, slice_of(text));
}

/* The indent of further lines: the column after a gap of blanks in the line's first half, else 0. */
static size_t hanging(struct slice line, size_t width)
{
    size_t at = 0;
    for (size_t i = 0; i + 2 < line.len && i < width / 2; i++)
        if (line.ptr[i] == ' ' && line.ptr[i + 1] == ' ' && line.ptr[i + 2] != ' ')
            at = i + 2;
    return at;
}

/* Writes a line that begins at `column`, in lines of at most `width` columns. Further ones begin at
 * `indent`. */
static void plain_line(FILE *f, struct slice line, size_t column, size_t indent, size_t width)
{
    while (column + line.len > width) {
        size_t at = column < width ? width - column : 0;
        while (at > 0 && line.ptr[at] != ' ')
            at--;
        /* A word that is wider than the line stays whole. */
        while (at == 0 || (at < line.len && line.ptr[at] != ' '))
            at++;
        if (at == line.len)
            break;
        plain_slice(f, slice_sub(line, 0, at));
        fprintf(f, "\n%*s", (int)indent, "");
        line = slice_sub(line, at + 1, line.len);
        column = indent;
    }
    plain_slice(f, line);
}

void plain_words(FILE *f, const char *text, size_t column, size_t width)
{
    plain_line(f, slice_of(text), column, column, width);
}

/* Writes text that begins at `column`. A terminal's lines end between words. */
static void plain_text(FILE *f, struct slice text, size_t column)
{
    const size_t width = terminal_is(f) ? help_width(f) : SIZE_MAX / 2;
    for (size_t end; (end = slice_find(text, SLICE("\n"), 0)) != SIZE_MAX; column = 0) {
        const struct slice line = slice_sub(text, 0, end);
        plain_line(f, line, column, hanging(line, width), width);
        fputc('\n', f);
        text = slice_sub(text, end + 1, text.len);
    }
    plain_line(f, text, column, hanging(text, width), width);
}

void plain_printf(FILE *f, const char *format, ...)
{
    char *text;
    va_list list;
    va_start(list, format);
    int n = vasprintf(&text, format, list);
    va_end(list);
    if (n < 0)
        return;
    plain_text(f, slice_of(text), 0);
    free(text);
}

void plain_error(const char *text)
{
    static const char name[] = "plateau: ";
    fputs(name, stderr);
    plain_text(stderr, slice_of(text), sizeof(name) - 1);
    fputc('\n', stderr);
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
