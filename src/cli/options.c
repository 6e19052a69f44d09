/* options.c - the places a value can come from, in the order in which they win. */
#include "cli/options.h"

#include "base/check.h"
#include "base/slice.h"
#include "cli/env_file.h"
#include "host/settings.h"
#include "host/settings_table.h"

#include <errno.h>
#include <ini.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define ENV_VALUE_BYTES 4096

/* --- an option that stands twice --- */

/* The texts that one place has given so far. Of two different ones for an option that takes one, the first
 * would be dropped without a word. */
struct given {
    const char *texts[SETTINGS_ROWS_MAX];
};

static int refuse_second(const char *dashes, const char *name, struct err *e)
{
    return err_set(e, -EINVAL, "%s%s is given twice, with different values%s", dashes, name,
                   strcmp(name, "model") == 0 ? "; plateau serve A B serves two models" : "");
}

/* `text` lives as long as `g`. */
static int set_once(struct given *g, const char *dashes, const struct setting_row *row, const char *text,
                    struct settings *o, struct err *e)
{
    const char **before = &g->texts[row - settings_table];
    if (*before && row->kind != SETTING_LIST && strcmp(*before, text) != 0)
        return refuse_second(dashes, row->name, e);
    *before = text;
    return settings_set(row, text, o, e);
}

/* --- the configuration file --- */

/* libinih reads lines into a fixed buffer: the rest of a longer one would be a line of its own. It takes an
 * indented line for more of the value above, and ends a line at a zero byte. Here a line that is too long or
 * has a zero byte is refused, blanks before a line say nothing, and a comment may have any length. */
struct reader {
    FILE *f;
    int lines, room;
    bool too_long, zero;
};

/* Reads a line for inih in place of fgets(), without comments and leading blanks. NULL ends the reading. */
static char *read_line(char *line, int bytes_max, void *arg)
{
    struct reader *r = arg;
    int c, n = 0;
    bool comment = false;
    r->lines++;
    r->room = bytes_max - 2; /* a line feed and the terminating zero */
    while ((c = getc(r->f)) != EOF && c != '\n') {
        comment |= n == 0 && (c == '#' || c == ';');
        if (comment || (n == 0 && (c == ' ' || c == '\t')))
            continue;
        r->zero = c == 0;
        r->too_long = n == r->room;
        if (r->zero || r->too_long)
            return NULL;
        line[n++] = (char)c;
    }
    if (c == EOF && n == 0)
        return NULL;
    memcpy(line + n, "\n", 2);
    return line;
}

static int parse(FILE *f, ini_handler entry, void *arg, struct err *e)
{
    struct reader r = {.f = f};
    int line = ini_parse_stream(read_line, &r, entry, arg);
    if (line < 0)
        return err_set(e, -ENOMEM, "no memory for a line");
    if (line > 0)
        return err_set(e, -EINVAL, "line %d is not name = value", line);
    if (r.too_long)
        return err_set(e, -EINVAL, "line %d has more than %d bytes", r.lines, r.room);
    return r.zero ? err_set(e, -EINVAL, "line %d has a zero byte", r.lines) : 0;
}

/* 0, -EINVAL (a line is not "name = value" or a section, or is too long; e names it), -ENOMEM, -ENOENT (the
 * file cannot be read). */
static int read_ini(const char *path, ini_handler entry, void *arg, struct err *e)
{
    FILE *f = fopen(path, "re");
    if (!f)
        return err_set(e, -ENOENT, "cannot be read: %s", strerror(errno));
    int r = parse(f, entry, arg, e);
    if (r == 0 && ferror(f))
        r = err_set(e, -ENOENT, "cannot be read");
    fclose(f);
    return r;
}

struct file_read {
    enum setting_command command;
    struct settings *o;
    struct err *e;
    int error;
    struct given given;
};

static int section_entry(struct settings *o, const char *section, const char *name, const char *value,
                         struct err *e)
{
    static const char word[] = "model ";
    if (strncmp(section, word, sizeof(word) - 1) != 0)
        return err_set(e, -EINVAL, "there is no section [%s]; [model NAME] has settings of one model",
                       section);
    const struct setting_row *row = settings_row_of(SECTION, name, strlen(name));
    if (!row)
        return err_set(e, -EINVAL, "[%s] cannot have %s%s", section, name,
                       options_near(SECTION, slice_of(name), "").text);
    return settings_set_section(o, section + sizeof(word) - 1, row, value, e);
}

static int head_entry(struct file_read *f, const char *name, const char *value)
{
    const struct setting_row *row = settings_row_of(options_file_commands(f->command), name, strlen(name));
    if (!row)
        return options_refuse(f->command, slice_of(name), "", f->e);
    f->o->config_secret |= settings_has_secret(row, value);
    const char *copy = settings_keep(f->o, value);
    return copy ? set_once(&f->given, "", row, copy, f->o, f->e) : -ENOMEM;
}

static int file_entry(void *arg, const char *section, const char *name, const char *value)
{
    struct file_read *f = arg;
    if (f->error)
        return 1;
    if (!section[0])
        f->error = head_entry(f, name, value);
    else if (f->command & COMMAND_TALK)
        f->error =
            err_set(f->e, -EINVAL,
                    "the section [%s] is one for plateau serve; this command takes no sections", section);
    else
        f->error = section_entry(f->o, section, name, value, f->e);
    return 1;
}

static int read_file(enum setting_command command, const char *path, struct settings *o, struct err *e)
{
    struct file_read f = {.command = command, .o = o, .e = e};
    struct err line = {{0}};
    int r = read_ini(path, file_entry, &f, &line);
    if (f.error)
        return err_prefix(e, f.error, "--config %s", path);
    return r < 0 ? err_set(e, r, "--config %s: %s", path, line.text) : 0;
}

/* --- environment and command line --- */

/* One entry of the file of --env-file. */
static int set_variable(struct file_read *f, const struct setting_row *row, const char *text)
{
    const char *kept = settings_keep(f->o, text);
    f->o->env_file_secret |= settings_has_secret(row, text);
    return kept ? settings_set(row, kept, f->o, f->e) : -ENOMEM;
}

static int env_file_entry(void *arg, struct slice name, struct slice value, struct err *e)
{
    struct file_read *f = arg;
    char text[ENV_VALUE_BYTES];
    if (!slice_starts(name, SLICE(OPTIONS_VARIABLE_HEAD)))
        return 0; /* For another command. */
    if (value.len >= sizeof(text))
        return err_set(e, -EINVAL, "the value of %.*s has more than %zu bytes", SLICE_ARGS(name),
                       sizeof(text) - 1);
    const struct setting_row *row = options_row_of_variable(options_file_commands(f->command), name);
    if (!row)
        return options_refuse_variable(f->command, name, e);
    snprintf(text, sizeof(text), "%.*s", SLICE_ARGS(value));
    int r = set_variable(f, row, text);
    explicit_bzero(text, sizeof(text));
    return r;
}

static int read_environment(struct settings *o, struct err *e)
{
    for (size_t i = 0; i < settings_table_count; i++) {
        struct options_variable name;
        if (!(settings_table[i].commands & COMMAND_EVERY) || !options_variable_of(&settings_table[i], &name))
            continue;
        const char *value = getenv(name.text);
        int r = value ? settings_set(&settings_table[i], value, o, e) : 0;
        if (r < 0)
            return err_prefix(e, r, "%s", name.text);
    }
    return 0;
}

/* Whether the command line has named another one. */
static bool is_second_model(const struct settings *o, const char *text)
{
    const char *first = o->models.named[0] ? o->models.named[0] : o->models.model;
    return first && strcmp(first, text) != 0;
}

static int add_model(const char *text, struct settings *o, struct err *e)
{
    uint32_t count = 0;
    if (!o->models.named[0] && is_second_model(o, text))
        return refuse_second("--", "model", e);
    while (o->models.named[count])
        count++;
    if (count == SETTINGS_MODELS_MAX)
        return err_set(e, -EINVAL, "at most %d models may be named; --model-dir takes more",
                       SETTINGS_MODELS_MAX);
    o->models.named[count] = text;
    return 0;
}

static int set_argument(enum setting_command command, const char *text, struct settings *o, struct err *e)
{
    if ((command & (COMMAND_GENERATE | COMMAND_CACHE | COMMAND_LOAD | COMMAND_UNLOAD | COMMAND_CLEAR |
                    COMMAND_SCHEMA | COMMAND_MODELS | COMMAND_PULL | COMMAND_COMPLETION | COMMAND_MANUAL |
                    COMMAND_LAUNCH | COMMAND_WHY)) &&
        !o->argument) {
        o->argument = text;
        return 0;
    }
    if (command == COMMAND_CACHE && !o->models.model) {
        o->models.model = o->store.dir = text;
        return 0;
    }
    if (command == COMMAND_MODELS && !o->models.model && strcmp(o->argument, "rm") == 0) {
        o->models.model = text;
        return 0;
    }
    if (command == COMMAND_PLAN || command == COMMAND_SERVE)
        return add_model(text, o, e);
    if (command == COMMAND_PACK && o->models.model && !o->argument) {
        o->argument = text;
        return 0;
    }
    if (o->models.model ||
        (command & (COMMAND_GENERATE | COMMAND_ADMIN | COMMAND_SCHEMA | COMMAND_MODELS | COMMAND_PULL |
                    COMMAND_OPEN | COMMAND_COMPLETION | COMMAND_MANUAL | COMMAND_LAUNCH)))
        return err_set(e, -EINVAL, "%s is one argument too many", text);
    o->models.model = text;
    return 0;
}

struct line_read {
    enum setting_command command;
    int argc, at; /* at: of the argument that is read */
    char **argv;
    struct settings *o;
    struct err *e;
    struct given given;
};

/* `text`: the argument without its dashes. */
static int read_flag(struct line_read *l, const char *text)
{
    const char *equals = strchr(text, '=');
    size_t len = equals ? (size_t)(equals - text) : strlen(text);
    const struct setting_row *row = settings_row_of((unsigned)l->command, text, len);
    if (!row)
        return options_refuse(l->command, (struct slice){text, len}, "--", l->e);
    if (!equals && row->kind != SETTING_FLAG && l->at + 1 >= l->argc)
        return err_set(l->e, -EINVAL, "--%s needs a value: %s", row->name, row->value);
    const char *value = equals ? equals + 1 : row->kind == SETTING_FLAG ? "1" : l->argv[++l->at];
    if (row->offset == offsetof(struct settings, models.model) && is_second_model(l->o, value))
        return refuse_second("--", row->name, l->e);
    return set_once(&l->given, "--", row, value, l->o, l->e);
}

/* NULL: there is no such letter. */
static const char *name_of_letter(const char *text)
{
    static const char *const names[] = {"help", "port", "model"};
    for (size_t i = 0; i < COUNT_OF(names); i++)
        if (text[0] == names[i][0] && text[1] == 0)
            return names[i];
    return NULL;
}

/* Finds the file that has to be known before the others are read: from the command line, else the
 * environment. */
static const char *find_early(int argc, char **argv, const char *flag, const char *variable)
{
    const char *found = getenv(variable);
    size_t len = strlen(flag);
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], flag) == 0 && i + 1 < argc)
            found = argv[i + 1];
        else if (strncmp(argv[i], flag, len) == 0 && argv[i][len] == '=')
            found = argv[i] + len + 1;
    }
    return found;
}

static int read_files(enum setting_command command, int argc, char **argv, struct settings *o, struct err *e)
{
    struct file_read f = {.command = command, .o = o, .e = e};
    const char *config = find_early(argc, argv, "--config", "PLATEAU_CONFIG");
    const char *env = find_early(argc, argv, "--env-file", "PLATEAU_ENV_FILE");
    int r = config ? read_file(command, config, o, e) : 0;
    o->config = config;
    env = o->env_file = env ? env : o->env_file;
    if (r == 0 && env && (r = env_file_read(env, env_file_entry, &f, e)) < 0)
        return err_prefix(e, r, "--env-file");
    return r;
}

static int read_arguments(struct line_read *l)
{
    bool plain = false;
    for (l->at = 1; l->at < l->argc; l->at++) {
        const char *text = l->argv[l->at];
        int r;
        if (!plain && strcmp(text, "--") == 0) {
            plain = true;
            if (l->command == COMMAND_LAUNCH) {
                l->o->rest = l->argv + l->at + 1;
                return 0;
            }
            continue;
        }
        if (!plain && strncmp(text, "--", 2) == 0)
            r = read_flag(l, text + 2);
        else if (!plain && text[0] == '-' && name_of_letter(text + 1))
            r = read_flag(l, name_of_letter(text + 1));
        else if (!plain && text[0] == '-' && text[1])
            r = err_set(
                l->e, -EINVAL,
                "there is no option %s; -h, -m and -p are --help, --model and --port, others have two "
                "dashes; after -- nothing is an option",
                text);
        else
            r = set_argument(l->command, text, l->o, l->e);
        if (r < 0)
            return r;
    }
    return 0;
}

int options_parse(enum setting_command command, int argc, char **argv, struct settings *ret, struct err *e)
{
    struct line_read line = {.command = command, .argc = argc, .argv = argv, .o = ret, .e = e};
    int r = settings_defaults(ret, e);
    if (r == 0)
        r = read_files(command, argc, argv, ret, e);
    if (r == 0)
        r = read_environment(ret, e);

    const char *model = ret->models.model;
    ret->models.model = NULL;
    if (r == 0)
        r = read_arguments(&line);
    if (!ret->models.model)
        ret->models.model = ret->models.named[0] ? ret->models.named[0] : model;
    if (!ret->models.named[0])
        ret->models.named[0] = ret->models.model;
    return r;
}

int options_log_format(const struct settings *o, struct err *e)
{
    enum log_format format = LOG_FORMAT_AUTO;
    if (o->log_format && !log_format_parse(o->log_format, &format))
        return err_set(e, -EINVAL, "--log-format %s: auto, text, journal or json is expected", o->log_format);
    log_set_format(format);
    return 0;
}

int options_log_level(const struct settings *o, enum log_level otherwise, struct err *e)
{
    enum log_level level = otherwise;
    if (o->log_level && !log_level_parse(o->log_level, &level))
        return err_set(e, -EINVAL, "--log-level %s: error, warn, info or debug is expected", o->log_level);
    log_set_level(level);
    return 0;
}
