/* options.c - the places a value can come from, in the order in which they win. */
#include "cli/options.h"

#include "base/check.h"
#include "base/slice.h"
#include "cli/config_file.h"
#include "cli/env_file.h"
#include "cli/options_table.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ENV_VALUE_BYTES 4096

/* A number, with K, M, G or T for a row of bytes. */
static bool parse_number(const struct option_row *row, const char *text, double *ret)
{
    char *end;
    errno = 0;
    double v = strtod(text, &end);
    if (end == text || errno || !isfinite(v) || isspace((unsigned char)text[0]))
        return false;
    static const char units[] = "KMGT";
    const char *unit = row->kind == OPTION_BYTES && *end ? strchr(units, toupper((unsigned char)*end)) : NULL;
    for (const char *u = units; unit && u <= unit; u++)
        v *= 1024;
    end += unit != NULL;
    if (*end != 0 || (row->kind != OPTION_REAL && v != floor(v)))
        return false;
    *ret = v;
    return v >= row->min && v <= row->max;
}

static int set_list(const struct option_row *row, const char *text, const char **list, struct err *e)
{
    for (int i = 0; i < OPTIONS_KEYS_MAX; i++) {
        if (!list[i]) {
            list[i] = text;
            return 0;
        }
    }
    return err_set(e, -EINVAL, "--%s: at most %d may be given", row->name, OPTIONS_KEYS_MAX);
}

static int set(const struct option_row *row, const char *text, struct options *o, struct err *e)
{
    void *field = (char *)o + row->offset;
    double v;
    switch (row->kind) {
    case OPTION_TEXT:
        *(const char **)field = text;
        return 0;
    case OPTION_LIST:
        return text[0] ? set_list(row, text, field, e)
                       : err_set(e, -EINVAL, "--%s: the value is empty", row->name);
    case OPTION_FLAG:
        *(bool *)field = strcmp(text, "0") != 0 && strcmp(text, "false") != 0 && strcmp(text, "no") != 0;
        return 0;
    default:
        break;
    }
    if (!parse_number(row, text, &v))
        return err_set(e, -EINVAL, "--%s %s: a number from %.15g to %.15g is expected%s", row->name, text,
                       row->min, row->max,
                       row->kind == OPTION_BYTES ? ", optionally with the suffix K, M, G or T" : "");
    if (row->kind == OPTION_REAL)
        *(double *)field = v;
    else
        *(uint64_t *)field = (uint64_t)v;
    return 0;
}

static int set_defaults(struct options *o, struct err *e)
{
    *o = (struct options){.prefix_cache = OPTIONS_ALL,
                          .image_cache = OPTIONS_ALL,
                          .mtp = OPTIONS_ALL,
                          .draft_vocab = OPTIONS_ALL};
    for (size_t i = 0; i < options_table_count; i++) {
        int r = options_table[i].otherwise ? set(&options_table[i], options_table[i].otherwise, o, e) : 0;
        if (r < 0)
            return r;
    }
    return 0;
}

/* --- the configuration file --- */

struct options_text {
    struct options_text *next;
    char text[];
};

/* NULL: no memory. */
static const char *keep_text(struct options *o, const char *text)
{
    size_t bytes = strlen(text) + 1;
    struct options_text *t = malloc(sizeof(*t) + bytes);
    if (!t)
        return NULL;
    memcpy(t->text, text, bytes);
    t->next = o->texts;
    o->texts = t;
    return t->text;
}

void options_done(struct options *o)
{
    while (o->sections) {
        struct options_section *s = o->sections;
        o->sections = s->next;
        free(s);
    }
    while (o->texts) {
        struct options_text *t = o->texts;
        o->texts = t->next;
        explicit_bzero(t->text, strlen(t->text));
        free(t);
    }
}

struct file_read {
    enum option_command command;
    struct options *o;
    struct err *e;
    int error;
};

/* The section of that name, created on first use; in the file's order. NULL: no memory. */
static struct options_section *section_of(struct options *o, const char *name)
{
    struct options_section **at = &o->sections;
    while (*at && strcmp((*at)->name, name) != 0)
        at = &(*at)->next;
    if (*at)
        return *at;
    struct options_section *s = calloc(1, sizeof(*s));
    if (s && !(s->name = keep_text(o, name))) {
        free(s);
        return NULL;
    }
    *at = s;
    return s;
}

static int section_entry(struct options *o, const char *section, const char *name, const char *value,
                         struct err *e)
{
    static const char word[] = "model ";
    struct options tried = {0};
    if (strncmp(section, word, sizeof(word) - 1) != 0)
        return err_set(e, -EINVAL, "there is no section [%s]; [model NAME] has settings of one model",
                       section);
    const struct option_row *row = options_row_of(SECTION, name, strlen(name));
    if (!row)
        return err_set(e, -EINVAL, "[%s] cannot have %s%s", section, name,
                       options_near(SECTION, slice_of(name), "").text);
    struct options_section *s = section_of(o, section + sizeof(word) - 1);
    const char *copy = s ? keep_text(o, value) : NULL;
    if (!copy)
        return -ENOMEM;
    if (s->count == SECTION_SETTINGS_MAX)
        return err_set(e, -EINVAL, "[%s] has more than %d settings", section, SECTION_SETTINGS_MAX);
    s->settings[s->count].row = row;
    s->settings[s->count++].text = copy;
    return set(row, copy, &tried, e) < 0 ? err_prefix(e, -EINVAL, "[%s]", section) : 0;
}

const char *options_section(const struct options *o, uint32_t index)
{
    const struct options_section *s = o->sections;
    while (s && index-- > 0)
        s = s->next;
    return s ? s->name : NULL;
}

int options_of_model(const struct options *o, const char *section, struct options *ret, struct err *e)
{
    struct options own = *o, neutral;
    int r = set_defaults(&neutral, e);
    own.texts = NULL;
    own.sections = NULL;
    memset(own.aliases, 0, sizeof(own.aliases));
    own.max_tokens_default = own.model_limit = 0;
    own.temperature = neutral.temperature;
    own.top_p = neutral.top_p;
    own.top_k = neutral.top_k;
    const struct options_section *s = section ? o->sections : NULL;
    while (s && strcmp(s->name, section) != 0)
        s = s->next;
    for (uint32_t i = 0; r == 0 && s && i < s->count; i++)
        r = set(s->settings[i].row, s->settings[i].text, &own, e);
    *ret = own;
    return r;
}

static int head_entry(struct file_read *f, const char *name, const char *value)
{
    const struct option_row *row = options_row_of(options_file_commands(f->command), name, strlen(name));
    if (!row)
        return options_refuse(f->command, slice_of(name), "", f->e);
    f->o->config_secret |= (row->commands & SECRET) != 0;
    const char *copy = keep_text(f->o, value);
    return copy ? set(row, copy, f->o, f->e) : -ENOMEM;
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

static int read_file(enum option_command command, const char *path, struct options *o, struct err *e)
{
    struct file_read f = {command, o, e, 0};
    struct err line = {{0}};
    int r = config_file_read(path, file_entry, &f, &line);
    if (f.error)
        return err_prefix(e, f.error, "--config %s", path);
    return r < 0 ? err_set(e, r, "--config %s: %s", path, line.text) : 0;
}

/* --- environment and command line --- */

/* One entry of the file of --env-file. */
static int set_variable(struct file_read *f, const struct option_row *row, const char *text)
{
    const char *kept = keep_text(f->o, text);
    f->o->env_file_secret |= (row->commands & SECRET) != 0;
    return kept ? set(row, kept, f->o, f->e) : -ENOMEM;
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
    const struct option_row *row = options_row_of_variable(options_file_commands(f->command), name);
    if (!row)
        return options_refuse_variable(f->command, name, e);
    snprintf(text, sizeof(text), "%.*s", SLICE_ARGS(value));
    int r = set_variable(f, row, text);
    explicit_bzero(text, sizeof(text));
    return r;
}

static int read_environment(struct options *o, struct err *e)
{
    for (size_t i = 0; i < options_table_count; i++) {
        struct options_variable name;
        if (!(options_table[i].commands & COMMAND_EVERY) || !options_variable_of(&options_table[i], &name))
            continue;
        const char *value = getenv(name.text);
        int r = value ? set(&options_table[i], value, o, e) : 0;
        if (r < 0)
            return err_prefix(e, r, "%s", name.text);
    }
    return 0;
}

static int add_model(const char *text, struct options *o, struct err *e)
{
    uint32_t count = 0;
    while (o->models[count])
        count++;
    if (count == OPTIONS_MODELS_MAX)
        return err_set(e, -EINVAL, "at most %d models may be named; --model-dir takes more",
                       OPTIONS_MODELS_MAX);
    o->models[count] = text;
    return 0;
}

static int set_argument(enum option_command command, const char *text, struct options *o, struct err *e)
{
    if ((command & (COMMAND_GENERATE | COMMAND_CACHE | COMMAND_LOAD | COMMAND_UNLOAD | COMMAND_CLEAR)) &&
        !o->argument) {
        o->argument = text;
        return 0;
    }
    if (command == COMMAND_CACHE && !o->model) {
        o->model = o->ssd_dir = text;
        return 0;
    }
    if (command == COMMAND_PLAN || command == COMMAND_SERVE)
        return add_model(text, o, e);
    if (o->model || (command & (COMMAND_GENERATE | COMMAND_ADMIN)))
        return err_set(e, -EINVAL, "%s is one argument too many", text);
    o->model = text;
    return 0;
}

static int read_flag(enum option_command command, int argc, char **argv, int *at, struct options *o,
                     struct err *e)
{
    const char *text = argv[*at] + 2, *equals = strchr(text, '=');
    size_t len = equals ? (size_t)(equals - text) : strlen(text);
    const struct option_row *row = options_row_of((unsigned)command, text, len);
    if (!row)
        return options_refuse(command, (struct slice){text, len}, "--", e);
    if (row->kind == OPTION_FLAG)
        return set(row, equals ? equals + 1 : "1", o, e);
    if (!equals && *at + 1 >= argc)
        return err_set(e, -EINVAL, "--%s needs a value: %s", row->name, row->value);
    return set(row, equals ? equals + 1 : argv[++*at], o, e);
}

/* What names a file has to be known before the others are read: from the command line, else the
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

static int read_files(enum option_command command, int argc, char **argv, struct options *o, struct err *e)
{
    struct file_read f = {command, o, e, 0};
    const char *config = find_early(argc, argv, "--config", "PLATEAU_CONFIG");
    const char *env = find_early(argc, argv, "--env-file", "PLATEAU_ENV_FILE");
    int r = config ? read_file(command, config, o, e) : 0;
    o->config = config;
    env = o->env_file = env ? env : o->env_file;
    if (r == 0 && env && (r = env_file_read(env, env_file_entry, &f, e)) < 0)
        return err_prefix(e, r, "--env-file");
    return r;
}

int options_parse(enum option_command command, int argc, char **argv, struct options *ret, struct err *e)
{
    int r = set_defaults(ret, e);
    if (r == 0)
        r = read_files(command, argc, argv, ret, e);
    if (r == 0)
        r = read_environment(ret, e);

    const char *model = ret->model;
    ret->model = NULL;
    bool plain = false;
    for (int i = 1; i < argc && r == 0; i++) {
        if (!plain && strcmp(argv[i], "--") == 0)
            plain = true;
        else if (!plain && strcmp(argv[i], "-h") == 0)
            ret->help = true;
        else if (!plain && strncmp(argv[i], "--", 2) == 0)
            r = read_flag(command, argc, argv, &i, ret, e);
        else if (!plain && argv[i][0] == '-' && argv[i][1])
            r = err_set(e, -EINVAL,
                        "there is no option %s: options have two dashes; what begins with one may follow --",
                        argv[i]);
        else
            r = set_argument(command, argv[i], ret, e);
    }
    if (!ret->model)
        ret->model = ret->models[0] ? ret->models[0] : model;
    if (!ret->models[0])
        ret->models[0] = ret->model;
    return r;
}

int options_log_level(const struct options *o, enum log_level otherwise, struct err *e)
{
    enum log_level level = otherwise;
    if (o->log_level && !log_level_parse(o->log_level, &level))
        return err_set(e, -EINVAL, "--log-level %s: error, warn, info or debug is expected", o->log_level);
    log_set_level(level);
    return 0;
}
