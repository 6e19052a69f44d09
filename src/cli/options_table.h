/* options_table.h - the rows of the table, for the files that read, compare and show options. Nobody else includes it. */
#ifndef PLATEAU_CLI_OPTIONS_TABLE_H
#define PLATEAU_CLI_OPTIONS_TABLE_H

#include "cli/options.h"

#include <stddef.h>

enum option_kind { OPTION_TEXT, OPTION_LIST, OPTION_COUNT, OPTION_BYTES, OPTION_REAL, OPTION_FLAG };

/* In the order in which help shows them. */
enum option_group {
    GROUP_MODEL,
    GROUP_ANSWER,
    GROUP_SCREEN,
    GROUP_NETWORK,
    GROUP_BATCH,
    GROUP_LIMITS,
    GROUP_MEDIA,
    GROUP_OTHER
};
struct option_row {
    enum option_group group;
    const char *name, *value; /* value: how help calls it; NULL for a flag */
    enum option_kind kind;
    size_t offset;
    double min, max;
    const char *otherwise; /* default; NULL: none */
    unsigned commands;     /* and LIVE, SECRET, SECTION */
    const char *help;      /* says what a default that is no value of its own means */
};

/* Beside commands. */
#define LIVE    0x10000 /* may change while the command runs */
#define SECRET  0x20000 /* not to be shown */
#define SECTION 0x40000 /* may stand in a section [model NAME] of the file */

extern const struct option_row options_table[];
extern const size_t options_table_count;
extern const char *const options_group_names[];
extern const size_t options_group_count;

/* The row of that name which some of these commands take; NULL: none does. */
const struct option_row *options_row_of(unsigned of_commands, const char *name, size_t len);

/* One [model NAME], as it was read: applied when it is asked for. */
#define SECTION_SETTINGS_MAX 32
struct options_section {
    struct options_section *next;
    const char *name;
    uint32_t count;
    struct {
        const struct option_row *row;
        const char *text;
    } settings[SECTION_SETTINGS_MAX];
};

#endif
