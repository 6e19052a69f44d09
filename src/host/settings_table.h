/* settings_table.h - one row per setting: name, type, bounds, default, help, the commands that take it, and
 * the place in struct settings where its reader finds it. Names in the environment and in files follow from
 * the name. For the files that read, compare and show settings only. */
#ifndef PLATEAU_HOST_SETTINGS_TABLE_H
#define PLATEAU_HOST_SETTINGS_TABLE_H

#include "host/setting_command.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;
struct settings;

/* Numbers are unsigned, of the size of their field; SECONDS and MS are kept in nanoseconds. */
enum setting_kind {
    SETTING_TEXT,
    SETTING_LIST,
    SETTING_COUNT,
    SETTING_SECONDS,
    SETTING_MS,
    SETTING_BYTES,
    SETTING_REAL,
    SETTING_FLAG
};

/* In the order in which help shows them. */
enum setting_group {
    GROUP_MODEL,
    GROUP_ANSWER,
    GROUP_SCREEN,
    GROUP_NETWORK,
    GROUP_BATCH,
    GROUP_LIMITS,
    GROUP_MEDIA,
    GROUP_OTHER
};
struct setting_row {
    enum setting_group group;
    const char *name, *value; /* value: how help calls it; NULL for a flag */
    enum setting_kind kind;
    size_t offset, size; /* offset and size of the field in struct settings, which is its reader's own */
    double min, max;
    const char *otherwise; /* default; NULL: none */
    unsigned commands;     /* and LIVE, SECRET, SECTION, FIRST */
    const char *help;      /* explains a default that is not a value of its own */
};

#define COMMAND_TALK (COMMAND_GENERATE | COMMAND_CHAT)

/* Beside commands. */
#define LIVE    0x1000000  /* may change while the command runs */
#define SECRET  0x2000000  /* lists of keys only: sealed for reloads, and overwritten in the command line */
#define SECTION 0x4000000  /* may stand in a section [model NAME] of the file */
#define FIRST   0x8000000  /* --help shows it; the others --help-all */
#define UNSHOWN 0x20000000 /* may have a password: no message has its value */
#define PLANNED 0x10000000 /* with LIVE: not above its value at the start, for which memory was planned */

/* Default of a number that is not given: all ones, which no text means; help does not show it. */
#define SETTINGS_NOT_GIVEN "-"

#define SETTINGS_ROWS_MAX 160
extern const struct setting_row settings_table[];
extern const size_t settings_table_count;
extern const char *const settings_group_names[];
extern const size_t settings_group_count;

/* The row of that name which some of these commands take; NULL: none does. */
const struct setting_row *settings_row_of(unsigned of_commands, const char *name, size_t len);

/* True if this value of the row has a key or a password, so that a file with it is private. */
bool settings_has_secret(const struct setting_row *row, const char *text);
/* A number of the row's field, in the row's unit. */
uint64_t settings_number(const struct setting_row *row, const struct settings *s);
/* Puts `text` into the row's field of `s`. 0, or -EINVAL with the name and the bounds. */
int settings_set(const struct setting_row *row, const char *text, struct settings *s, struct err *e);
/* As `settings_set()`, but for the section of that name. Keeps a copy of the text. 0, -EINVAL, -ENOMEM. */
int settings_set_section(struct settings *s, const char *section, const struct setting_row *row,
                         const char *text, struct err *e);

/* One [model NAME], as read: applied to its model later. */
#define SECTION_SETTINGS_MAX 32
struct settings_section {
    struct settings_section *next;
    const char *name;
    uint32_t count;
    struct {
        const struct setting_row *row;
        const char *text;
    } settings[SECTION_SETTINGS_MAX];
};

#endif
