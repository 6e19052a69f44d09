/* help_lines.h - text in lines as wide as the terminal. */
#ifndef PLATEAU_CLI_HELP_LINES_H
#define PLATEAU_CLI_HELP_LINES_H

#include <stdio.h>

#define HELP_WIDTH_MAX 100 /* also where no terminal is */
#define HELP_WIDTH_MIN 40
#define HELP_NARROW    72 /* below this width texts of a second column stand on lines of their own, at ... */
#define HELP_INDENT    6

/* Columns of a terminal: the variable COLUMNS, else what the terminal says, else HELP_WIDTH_MAX. */
unsigned terminal_columns(FILE *f);
/* Columns of a line: terminal_columns() within the bounds above. */
unsigned help_width(FILE *f);

struct help_lines {
    FILE *f;
    unsigned width, column; /* column: of the next character */
};

/* Words of `text` from `column` on, further lines from `indent` on. White space in the text, line ends
 * included, separates words. Text in brackets is one word. */
void help_words(struct help_lines *l, unsigned indent, const char *text);
/* Ends the line and begins one at `indent`. */
void help_line(struct help_lines *l, unsigned indent);
/* A whole paragraph from column 0 on, with its line end. */
void help_paragraph(struct help_lines *l, const char *text);
/* A shell's command without its line end. One that is too wide gets lines that end in a backslash. They break
 * at blanks outside quotes, but not between an option and its value. */
void help_shell(struct help_lines *l, unsigned indent, const char *command);

#endif
