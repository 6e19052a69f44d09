/* line_input.c - libedit (BSD licence, Debian's libedit2) does the editing; files and pipes are read without
 * it.
 *
 * libedit's own signal handling is on: it restores the terminal before a signal does its work and follows
 * changes of the window's size. An interrupt ends its wait, and el_gets() with NULL. Pasted text comes
 * between two marks that the terminal sends when asked to ("bracketed paste"), so its line feeds are text and
 * not the end of a message. */
#include "cli/chat/line_input.h"

#include "cli/chat/line_history.h"
#include "cli/interrupt.h"

#include "base/buf.h"
#include "base/check.h"

#include <errno.h>
#include <histedit.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PASTE_ON    "\033[?2004h"
#define PASTE_OFF   "\033[?2004l"
#define PASTE_BEGIN "\033[200~"
#define PASTE_END   L"\033[201~"

struct line_input {
    struct buf text; /* the message */
    EditLine *edit;  /* NULL: plain lines */
    History *history;
    char history_path[4096]; /* "": none */
    bool colours, marks;     /* marks: the terminal marks pasted text */
    bool goes_on;            /* the prompt is that of a further line */
    char prompt[64];         /* prompt of a first line */
};

/* --- history --- */

static void keep(struct line_input *in)
{
    HistEvent event;
    if (in->text.len == 0)
        return;
    buf_putc(&in->text, 0);
    if (in->text.error)
        return;
    in->text.len--;
    history(in->history, &event, H_ENTER, in->text.ptr);
    if (in->history_path[0])
        line_history_append(in->history_path, in->text.ptr);
}

/* --- the terminal --- */

static char *prompt_of(EditLine *edit)
{
    static char further[] = ". ";
    struct line_input *in;
    el_get(edit, EL_CLIENTDATA, &in);
    return in->goes_on ? further : in->prompt;
}

/* Everything up to the mark that ends a paste goes into the line; control characters do not. */
static unsigned char on_paste(EditLine *edit, int ch)
{
    static const wchar_t end[] = PASTE_END;
    size_t matched = 0;
    wchar_t c;
    (void)ch;
    while (matched + 1 < COUNT_OF(end) && el_wgetc(edit, &c) == 1) {
        if (c == end[matched]) {
            matched++;
            continue;
        }
        matched = c == end[0];
        c = c == L'\r' ? L'\n' : c;
        if (c >= L' ' || c == L'\n' || c == L'\t')
            el_winsertstr(edit, (const wchar_t[]){c, 0});
    }
    return CC_REFRESH;
}

static int open_terminal(struct line_input *in, const char *history_file)
{
    /* Bytes to characters: by the environment, but never as if every byte were a character. */
    setlocale(LC_CTYPE, "");
    if (MB_CUR_MAX == 1)
        setlocale(LC_CTYPE, "C.UTF-8");
    in->edit = el_init("plateau", stdin, stdout, stderr);
    in->history = history_init();
    if (!in->edit || !in->history)
        return -ENOMEM;
    if (!history_file)
        line_history_usual(in->history_path, sizeof(in->history_path));
    else
        snprintf(in->history_path, sizeof(in->history_path), "%s", history_file);
    line_history_load(in->history, in->history_path);
    const char *term = getenv("TERM");
    in->marks = term && strcmp(term, "dumb") != 0;
    el_set(in->edit, EL_CLIENTDATA, in);
    el_set(in->edit, EL_PROMPT_ESC, prompt_of, '\1');
    el_set(in->edit, EL_EDITOR, "emacs");
    el_set(in->edit, EL_SIGNAL, 1);
    el_set(in->edit, EL_HIST, history, in->history);
    el_set(in->edit, EL_BIND, "^R", "em-inc-search-prev", NULL);
    /* The wide form keeps our pointers; el_set() would keep copies that are never freed. */
    el_wset(in->edit, EL_ADDFN, L"plateau-paste", L"inserts pasted text", on_paste);
    el_set(in->edit, EL_BIND, PASTE_BEGIN, "plateau-paste", NULL);
    el_source(in->edit, NULL); /* the user's own ~/.editrc */
    return 0;
}

static void ask_marks(const struct line_input *in, const char *words)
{
    if (in->marks)
        fputs(words, stdout);
    fflush(stdout);
}

static enum line_result edit_line(struct line_input *in)
{
    const char *line;
    int count = 0;
    /* Before the prompt: otherwise the terminal still reads whole lines, and a Ctrl-D then has another
     * meaning. */
    el_set(in->edit, EL_PREP_TERM, 1);
    ask_marks(in, PASTE_ON);
    do
        errno = 0;
    while (!(line = el_gets(in->edit, &count)) && errno == EINTR && !interrupt_pending());
    ask_marks(in, PASTE_OFF);
    if (interrupt_take())
        return LINE_INTERRUPTED;
    if (!line || count <= 0)
        return LINE_END;
    size_t len = (size_t)count;
    buf_put(&in->text, line, line[len - 1] == '\n' ? len - 1 : len);
    return LINE_TEXT;
}

/* --- files and pipes --- */

static enum line_result plain_line(struct line_input *in)
{
    int c = 0;
    size_t before = in->text.len;
    while (!interrupt_pending() && (c = getc_unlocked(stdin)) != EOF && c != '\n')
        buf_putc(&in->text, (char)c);
    if (interrupt_take())
        return LINE_INTERRUPTED;
    if (in->text.len > before && in->text.ptr[in->text.len - 1] == '\r')
        in->text.len--;
    return c == EOF && in->text.len == before ? LINE_END : LINE_TEXT;
}

/* --- both --- */

int line_input_create(const struct line_input_opts *opts, struct line_input **ret)
{
    struct line_input *in = calloc(1, sizeof(*in));
    if (!in)
        return -ENOMEM;
    in->colours = opts->colours;
    line_input_attached(in, 0);
    buf_init(&in->text, opts->bytes_max, NULL);
    int r = opts->terminal ? open_terminal(in, opts->history) : 0;
    if (r < 0) {
        line_input_free(in);
        return r;
    }
    *ret = in;
    return 0;
}

void line_input_attached(struct line_input *in, uint32_t count)
{
    char words[32] = "";
    if (count > 0)
        snprintf(words, sizeof(words), "[%u attached] ", count);
    snprintf(in->prompt, sizeof(in->prompt), in->colours ? "\1\033[1m\1%s> \1\033[0m\1" : "%s> ", words);
}

void line_input_free(struct line_input *in)
{
    if (!in)
        return;
    if (in->edit)
        el_end(in->edit);
    if (in->history)
        history_end(in->history);
    buf_done(&in->text);
    free(in);
}

enum line_result line_input_read(struct line_input *in, struct slice *ret)
{
    enum line_result result;
    buf_clear(&in->text);
    in->goes_on = false;
    do {
        if (in->goes_on)
            in->text.ptr[in->text.len - 1] = '\n';
        result = in->edit ? edit_line(in) : plain_line(in);
        if (result == LINE_END && in->text.len)
            result = LINE_TEXT; /* it went on, and nothing came */
        in->goes_on = result == LINE_TEXT && in->text.len && in->text.ptr[in->text.len - 1] == '\\';
    } while (in->goes_on && !in->text.error);
    if (result != LINE_TEXT)
        return result;
    if (in->text.error)
        return LINE_TOO_LONG;
    if (in->edit)
        keep(in);
    *ret = buf_slice(&in->text);
    return LINE_TEXT;
}
