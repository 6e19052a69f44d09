/* options_table.h - the rows of the table, for the files that read, compare and show options only. */
#ifndef PLATEAU_CLI_OPTIONS_TABLE_H
#define PLATEAU_CLI_OPTIONS_TABLE_H

#include "cli/options.h"

#include "base/slice.h"
#include "cli/nearest.h"

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
    const char *help;      /* explains a default that is not a value of its own */
};

#define COMMAND_TALK (COMMAND_GENERATE | COMMAND_CHAT)

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

/* Names of options in the environment: PLATEAU_MAX_QUEUE. */
#define OPTIONS_VARIABLE_HEAD "PLATEAU_"
struct options_variable {
    char text[64];
};
/* False: the option stands on the command line only. */
bool options_variable_of(const struct option_row *row, struct options_variable *ret);
const struct option_row *options_row_of_variable(unsigned of_commands, struct slice name);

/* The commands whose options may stand in a file that was named for `command`. */
unsigned options_file_commands(enum option_command command);
/* -EINVAL: why `command` takes no option called `name`, or none of that name is there; the closest name.
 * dashes: "--" on the command line, "" in the file of --config. */
int options_refuse(enum option_command command, struct slice name, const char *dashes, struct err *e);
/* Likewise of a variable in the file of --env-file. */
int options_refuse_variable(enum option_command command, struct slice name, struct err *e);
/* The closest name of an option that some of these commands take, as a question. */
struct nearest_text options_near(unsigned of_commands, struct slice name, const char *dashes);

/* One [model NAME], as read: applied to its model later. */
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
