/* options.c - the table, and the three places a value can come from. */
#include "cli/options.h"

#include "base/check.h"
#include "base/slice.h"
#include "cli/env_file.h"

#include <ctype.h>
#include <errno.h>
#include <ini.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum option_kind { OPTION_TEXT, OPTION_LIST, OPTION_COUNT, OPTION_BYTES, OPTION_REAL, OPTION_FLAG };

/* In the order in which help shows them. */
enum option_group {
    GROUP_MODEL,
    GROUP_ANSWER,
    GROUP_SCREEN,
    GROUP_NETWORK,
    GROUP_BATCH,
    GROUP_LIMITS,
    GROUP_OTHER
};
static const char *const group_names[] = {"Model and memory",
                                          "Answers",
                                          "Conversation",
                                          "Network and access",
                                          "Scheduling",
                                          "Limits of what clients may take",
                                          "Other"};

struct option_row {
    enum option_group group;
    const char *name, *value; /* value: how help calls it; NULL for a flag */
    enum option_kind kind;
    size_t offset;
    double min, max;
    const char *otherwise; /* default; NULL: none */
    unsigned commands;     /* and LIVE, SECRET */
    const char *help;      /* says what a default that is no value of its own means */
};

#define ENV_VALUE_BYTES 4096

#define AT(field)    offsetof(struct options, field)
#define COMMAND_TALK (COMMAND_GENERATE | COMMAND_CHAT)
#define COMMAND_RUN  (COMMAND_SERVE | COMMAND_TALK)
#define LIVE         0x100                          /* may change while the command runs */
#define SECRET       0x200                          /* not to be shown */
#define SECTION      0x400                          /* may stand in a section [model NAME] of the file */
#define COMMAND_SIZE (COMMAND_SERVE | COMMAND_PLAN) /* what decides how much memory serving takes */

static const struct option_row rows[] = {
    {GROUP_MODEL, "model", "DIR", OPTION_TEXT, AT(model), 0, 0, NULL, COMMAND_ANY,
     "the model's directory [default: the bundled model]"},
    {GROUP_MODEL, "memory-limit", "BYTES", OPTION_BYTES, AT(memory_limit), 0, 1e15, "0", COMMAND_ANY,
     "ceiling of all memory; 0: what cgroup and machine leave"},
    {GROUP_MODEL, "max-model-len", "TOKENS", OPTION_COUNT, AT(max_model_len), 0, 1e7, "0",
     COMMAND_ANY | SECTION, "longest prompt and answer; 0: the model's own, or what fits"},
    {GROUP_MODEL, "ctx", "TOKENS", OPTION_COUNT, AT(max_model_len), 0, 1e7, NULL, COMMAND_PLAN,
     "the same as --max-model-len"},
    {GROUP_MODEL, "host-cache", "BYTES", OPTION_BYTES, AT(host_cache), 0, 1e15, NULL,
     COMMAND_SIZE | COMMAND_CHAT | SECTION,
     "memory for the beginnings of earlier requests, which later ones need not compute again; 0: none "
     "[default: what the ceiling leaves]"},
    {GROUP_MODEL, "ssd-dir", "DIR", OPTION_TEXT, AT(ssd_dir), 0, 0, NULL, COMMAND_SIZE,
     "a directory that keeps the beginnings of earlier requests when they go from memory, over unloads and "
     "restarts "
     "[default: none]"},
    {GROUP_MODEL, "ssd-limit", "BYTES", OPTION_BYTES, AT(ssd_limit), 4194304, 1e15, "20G",
     COMMAND_SIZE | COMMAND_CACHE,
     "disk blocks that --ssd-dir may take, as du counts them; what was used longest ago goes first"},
    {GROUP_MODEL, "ssd-staging", "BYTES", OPTION_BYTES, AT(ssd_staging), 1048576, 1e11, "64M", COMMAND_SIZE,
     "memory through which everything goes to and from --ssd-dir"},
    {GROUP_MODEL, "text-limit", "BYTES", OPTION_BYTES, AT(text_limit), 0, 1e13, "0", COMMAND_SIZE,
     "memory for the texts of all requests together; 0: an eighth of the ceiling, 1G at most"},
    {GROUP_MODEL, "trim", "on|off", OPTION_TEXT, AT(trim), 0, 0, "on", COMMAND_SERVE,
     "off: memory that is free stays until some is short; to measure what giving it back costs"},
    {GROUP_MODEL, "compute", "MODE", OPTION_TEXT, AT(compute), 0, 0, "auto", COMMAND_RUN,
     "arithmetic: auto or f32, which are the same at present"},
    {GROUP_MODEL, "threads", "N", OPTION_COUNT, AT(threads), 0, 256, "0", COMMAND_ANY,
     "threads that compute; 0: one per core"},
    {GROUP_MODEL, "model-dir", "DIR", OPTION_LIST, AT(model_dirs), 0, 0, NULL, COMMAND_SERVE,
     "serve every model below DIR, each loaded when it is first asked for; may be given several times"},
    {GROUP_MODEL, "alias", "NAME[=MODEL]", OPTION_LIST, AT(aliases), 0, 0, NULL, COMMAND_SERVE | SECTION,
     "another name for a model; NAME alone: the name of the only one; may be given several times "
     "[default: its directory's]"},
    {GROUP_MODEL, "ttl", "SECONDS", OPTION_COUNT, AT(ttl_s), 0, 1e8, "0", COMMAND_SERVE | SECTION,
     "a model that nobody used for so long is unloaded; 0: never"},
    {GROUP_MODEL, "pin", "MODEL", OPTION_LIST, AT(pins), 0, 0, NULL, COMMAND_SERVE,
     "never unload it, neither for others nor for its ttl; may be given several times"},
    {GROUP_MODEL, "load-timeout", "SECONDS", OPTION_COUNT, AT(load_timeout_s), 1, 86400, "600", COMMAND_SERVE,
     "how long a request waits for its model to be loaded"},
    {GROUP_MODEL, "memory-limit", "BYTES", OPTION_BYTES, AT(model_limit), 0, 1e15, "0", SECTION,
     "ceiling of the model, everything that belongs to it included"},
    {GROUP_MODEL, "pin", NULL, OPTION_FLAG, AT(pinned), 0, 0, NULL, SECTION, "as --pin"},
    {GROUP_MODEL, "chat-template-kwargs", "JSON", OPTION_TEXT, AT(template_kwargs), 0, 0, NULL, SECTION,
     "an object of variables for the chat template, where a request gives none of its own"},
    {GROUP_MODEL, "min-p", "P", OPTION_REAL, AT(min_p), -1, 1, "-1", SECTION,
     "draw from tokens at least P times as likely as the likeliest; -1: the model's own"},
    {GROUP_MODEL, "repetition-penalty", "R", OPTION_REAL, AT(repetition_penalty), 0, 10, "0", SECTION,
     "above 1: tokens that were there become less likely; 0: the model's own"},

    {GROUP_ANSWER, "max-tokens", "N", OPTION_COUNT, AT(max_tokens), 0, 1e7, "0", COMMAND_TALK,
     "longest answer; 0: what is left of the context"},
    {GROUP_ANSWER, "temperature", "T", OPTION_REAL, AT(temperature), -1, 2, "-1", COMMAND_TALK | SECTION,
     "how freely tokens are drawn; 0: always the likeliest, -1: the model's own"},
    {GROUP_ANSWER, "top-p", "P", OPTION_REAL, AT(top_p), 0, 1, "0", COMMAND_TALK | SECTION,
     "draw from the likeliest tokens that together have P; 0: the model's own"},
    {GROUP_ANSWER, "top-k", "K", OPTION_COUNT, AT(top_k), 0, 1e6, "0", COMMAND_TALK | SECTION,
     "draw from the K likeliest tokens; 0: the model's own"},
    {GROUP_ANSWER, "seed", "N", OPTION_COUNT, AT(seed), 0, 1e18, "0", COMMAND_TALK,
     "the same seed gives the same text; 0: another one each time"},
    {GROUP_ANSWER, "system", "TEXT", OPTION_TEXT, AT(system), 0, 0, NULL, COMMAND_TALK,
     "a system message: who the model is, how it should answer"},
    {GROUP_ANSWER, "think", NULL, OPTION_FLAG, AT(think), 0, 0, NULL, COMMAND_TALK,
     "let the model reason first"},
    {GROUP_ANSWER, "raw", NULL, OPTION_FLAG, AT(raw), 0, 0, NULL, COMMAND_GENERATE,
     "complete the prompt as it is, without the chat template"},
    {GROUP_ANSWER, "ignore-eos", NULL, OPTION_FLAG, AT(ignore_eos), 0, 0, NULL, COMMAND_TALK,
     "go on behind the model's end token"},

    {GROUP_SCREEN, "hide-reasoning", NULL, OPTION_FLAG, AT(hide_reasoning), 0, 0, NULL, COMMAND_CHAT,
     "show answers only, not what the model thinks before them"},
    {GROUP_SCREEN, "history", "FILE", OPTION_TEXT, AT(history), 0, 0, NULL, COMMAND_CHAT,
     "the file that keeps what you type, for the arrow keys; \"\": none "
     "[default: ~/.local/state/plateau/chat_history]"},

    {GROUP_NETWORK, "host", "ADDRESS", OPTION_TEXT, AT(host), 0, 0, "127.0.0.1", COMMAND_SERVE,
     "the address to listen on; beyond loopback an --api-key or an --api-key-file is needed"},
    {GROUP_NETWORK, "port", "N", OPTION_COUNT, AT(port), 0, 65535, "8080", COMMAND_SERVE,
     "the port to listen on; 0: any free port, which is printed"},
    {GROUP_NETWORK, "api-key", "KEY", OPTION_LIST, AT(api_keys), 0, 0, NULL, COMMAND_SERVE | LIVE | SECRET,
     "clients must send it; may be given several times; a file keeps it out of the shell's history "
     "[default: none]"},
    {GROUP_NETWORK, "api-key-file", "FILE", OPTION_LIST, AT(api_key_files), 0, 0, NULL, COMMAND_SERVE | LIVE,
     "keys that clients may send, one to a line, each alone or after its owner's name; may be given several "
     "times"},
    {GROUP_NETWORK, "admin-key", "KEY", OPTION_LIST, AT(admin_keys), 0, 0, NULL,
     COMMAND_SERVE | LIVE | SECRET,
     "as --api-key, for the admin's routes; without one they answer on loopback only"},
    {GROUP_NETWORK, "admin-key-file", "FILE", OPTION_LIST, AT(admin_key_files), 0, 0, NULL,
     COMMAND_SERVE | LIVE, "as --api-key-file, for the admin's routes"},
    {GROUP_NETWORK, "allow-open", NULL, OPTION_FLAG, AT(allow_open), 0, 0, NULL, COMMAND_SERVE | LIVE,
     "listen beyond loopback without a key: everybody who reaches the port may use the models"},
    {GROUP_NETWORK, "idle-timeout", "SECONDS", OPTION_COUNT, AT(idle_timeout_s), 1, 86400, "60",
     COMMAND_SERVE | LIVE, "a connection that does nothing for so long is closed"},
    {GROUP_NETWORK, "keepalive", "SECONDS", OPTION_COUNT, AT(keepalive_s), 1, 3600, "10",
     COMMAND_SERVE | LIVE, "a stream that is silent for so long sends a comment"},
    {GROUP_NETWORK, "drain", "SECONDS", OPTION_COUNT, AT(drain_s), 0, 3600, "10", COMMAND_SERVE | LIVE,
     "how long SIGTERM and Ctrl-C wait for open requests"},

    {GROUP_BATCH, "max-num-seqs", "N", OPTION_COUNT, AT(max_num_seqs), 1, 256, "8", COMMAND_SIZE | SECTION,
     "requests computed together"},
    {GROUP_BATCH, "max-queue", "N", OPTION_COUNT, AT(max_queue), 1, 65536, "256", COMMAND_SIZE | LIVE,
     "requests that may wait; more are told 429"},
    {GROUP_BATCH, "queue-timeout", "SECONDS", OPTION_COUNT, AT(queue_timeout_s), 0, 86400, "600",
     COMMAND_SERVE | LIVE, "longest wait for a place; 0: for ever"},
    {GROUP_BATCH, "step-ms", "MS", OPTION_COUNT, AT(step_ms), 1, 10000, "100", COMMAND_SERVE | LIVE,
     "how long a step may last that others wait for"},
    {GROUP_BATCH, "prep-threads", "N", OPTION_COUNT, AT(prep_threads), 0, 16, "0", COMMAND_SIZE,
     "threads that read and tokenize requests; 0: by cores"},

    {GROUP_LIMITS, "max-tokens-default", "N", OPTION_COUNT, AT(max_tokens_default), 0, 1e7, "0",
     COMMAND_SERVE | LIVE | SECTION, "answer length when a request says none; 0: what is left"},
    {GROUP_LIMITS, "max-requests", "N", OPTION_COUNT, AT(max_requests), 1, 65536, "1024", COMMAND_SIZE | LIVE,
     "requests held at once, waiting ones included"},
    {GROUP_LIMITS, "max-connections", "N", OPTION_COUNT, AT(max_connections), 1, 65536, "256", COMMAND_SIZE,
     "open connections; more are told 429"},
    {GROUP_LIMITS, "max-request-bytes", "BYTES", OPTION_BYTES, AT(max_request_bytes), 1048576, 1e11, "256M",
     COMMAND_SERVE | LIVE, "memory one request may hold for its texts"},
    {GROUP_LIMITS, "max-body-bytes", "BYTES", OPTION_BYTES, AT(max_body_bytes), 1024, 1e10, "64M",
     COMMAND_SERVE | LIVE, "longest request body"},
    {GROUP_LIMITS, "max-header-bytes", "BYTES", OPTION_BYTES, AT(max_header_bytes), 1024, 1e6, "8K",
     COMMAND_SIZE, "longest request line and headers"},
    {GROUP_LIMITS, "json-depth", "N", OPTION_COUNT, AT(json_depth), 4, 256, "64", COMMAND_SERVE,
     "deepest nesting of a request's JSON"},
    {GROUP_LIMITS, "slow-client", "SECONDS", OPTION_COUNT, AT(slow_client_s), 1, 86400, "30",
     COMMAND_SERVE | LIVE, "a client that does not read for so long is dropped"},

    {GROUP_OTHER, "stuck", "SECONDS", OPTION_COUNT, AT(stuck_s), 1, 86400, "30", COMMAND_SERVE | LIVE,
     "a model that has work and finishes no layer for so long is reported, and /health says 503"},
    {GROUP_OTHER, "config", "FILE", OPTION_TEXT, AT(config), 0, 0, NULL, COMMAND_ANY,
     "an INI file with any of these, name = value"},
    {GROUP_OTHER, "env-file", "FILE", OPTION_TEXT, AT(env_file), 0, 0, NULL, COMMAND_ANY,
     "a file with any of these as the environment has them, PLATEAU_NAME=value"},
    {GROUP_OTHER, "log-level", "LEVEL", OPTION_TEXT, AT(log_level), 0, 0, NULL, COMMAND_SERVE | LIVE,
     "error, warn, info or debug [default: info]"},
    {GROUP_OTHER, "log-level", "LEVEL", OPTION_TEXT, AT(log_level), 0, 0, NULL, COMMAND_TALK,
     "error, warn, info or debug [default: warn]"},
    {GROUP_OTHER, "json", NULL, OPTION_FLAG, AT(json), 0, 0, NULL, COMMAND_PLAN | COMMAND_CACHE,
     "print JSON instead of a table"},
    {GROUP_OTHER, "help", NULL, OPTION_FLAG, AT(help), 0, 0, NULL, COMMAND_EVERY, "this text (-h)"},
};

static bool is_called(const struct option_row *row, const char *name, size_t len)
{
    return strlen(row->name) == len && memcmp(row->name, name, len) == 0;
}

/* The row of that name which some of these commands take. */
static const struct option_row *row_of(unsigned of_commands, const char *name, size_t len)
{
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        if ((rows[i].commands & of_commands) && is_called(&rows[i], name, len))
            return &rows[i];
    return NULL;
}

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
                       row->min, row->max, row->kind == OPTION_BYTES ? ", K, M, G or T behind it" : "");
    if (row->kind == OPTION_REAL)
        *(double *)field = v;
    else
        *(uint64_t *)field = (uint64_t)v;
    return 0;
}

static int set_defaults(struct options *o, struct err *e)
{
    *o = (struct options){.host_cache = OPTIONS_ALL};
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        int r = rows[i].otherwise ? set(&rows[i], rows[i].otherwise, o, e) : 0;
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
    struct options *o;
    struct err *e;
    int error;
};

/* The section of that name, made where there is none; in the file's order. NULL: no memory. */
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
    const struct option_row *row = row_of(SECTION, name, strlen(name));
    if (!row)
        return err_set(e, -EINVAL, "[%s] cannot have %s", section, name);
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

static int file_entry(void *arg, const char *section, const char *name, const char *value)
{
    struct file_read *f = arg;
    const struct option_row *row = row_of(COMMAND_EVERY, name, strlen(name));
    if (f->error)
        return 1;
    if (section[0]) {
        f->error = section_entry(f->o, section, name, value, f->e);
        return 1;
    }
    const char *copy = row ? keep_text(f->o, value) : NULL;
    if (!row)
        f->error = err_set(f->e, -EINVAL, "no option is called %s", name);
    else
        f->error = copy ? set(row, copy, f->o, f->e) : -ENOMEM;
    return 1;
}

static int read_file(const char *path, struct options *o, struct err *e)
{
    struct file_read f = {o, e, 0};
    int r = ini_parse(path, file_entry, &f);
    if (r < 0)
        return err_set(e, -ENOENT, "--config %s: cannot be read", path);
    if (r > 0)
        return err_set(e, -EINVAL, "--config %s: line %d is not name = value", path, r);
    return f.error ? err_prefix(e, f.error, "--config %s", path) : 0;
}

/* --- environment and command line --- */

#define NAME_BYTES 64

/* Asked for on the command line only. */
static bool is_help(const struct option_row *row)
{
    return strcmp(row->name, "help") == 0;
}

/* PLATEAU_MAX_QUEUE. */
static void write_environment_name(const struct option_row *row, char ret[NAME_BYTES])
{
    size_t n = (size_t)snprintf(ret, NAME_BYTES, "PLATEAU_");
    for (const char *c = row->name; *c && n + 1 < NAME_BYTES; c++)
        ret[n++] = *c == '-' ? '_' : (char)toupper((unsigned char)*c);
    ret[n] = 0;
}

static int env_file_entry(void *arg, struct slice name, struct slice value, struct err *e)
{
    struct options *o = arg;
    char own[NAME_BYTES], text[ENV_VALUE_BYTES];
    if (!slice_starts(name, SLICE("PLATEAU_")))
        return 0; /* Somebody else's. */
    if (value.len >= sizeof(text))
        return err_set(e, -EINVAL, "the value of %.*s has more than %zu bytes", SLICE_ARGS(name),
                       sizeof(text) - 1);
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        write_environment_name(&rows[i], own);
        if (!slice_eq(name, slice_of(own)) || is_help(&rows[i]))
            continue;
        snprintf(text, sizeof(text), "%.*s", SLICE_ARGS(value));
        const char *kept = keep_text(o, text);
        explicit_bzero(text, sizeof(text));
        return kept ? set(&rows[i], kept, o, e) : -ENOMEM;
    }
    return err_set(e, -EINVAL, "no option is called %.*s", SLICE_ARGS(name));
}

static int read_environment(struct options *o, struct err *e)
{
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        char name[NAME_BYTES];
        if (!(rows[i].commands & COMMAND_EVERY))
            continue;
        write_environment_name(&rows[i], name);
        const char *value = is_help(&rows[i]) ? NULL : getenv(name);
        int r = value ? set(&rows[i], value, o, e) : 0;
        if (r < 0)
            return err_prefix(e, r, "%s", name);
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
    if ((command == COMMAND_GENERATE || command == COMMAND_CACHE) && !o->argument) {
        o->argument = text;
        return 0;
    }
    if (command == COMMAND_CACHE && !o->model) {
        o->model = o->ssd_dir = text;
        return 0;
    }
    if (command == COMMAND_PLAN || command == COMMAND_SERVE)
        return add_model(text, o, e);
    if (o->model || command == COMMAND_GENERATE)
        return err_set(e, -EINVAL, "%s is one argument too many", text);
    o->model = text;
    return 0;
}

static int unknown_flag(enum option_command command, const char *flag, size_t len, struct err *e)
{
    static const char *const names[] = {[COMMAND_SERVE] = "serve",
                                        [COMMAND_GENERATE] = "generate",
                                        [COMMAND_CHAT] = "chat",
                                        [COMMAND_PLAN] = "plan",
                                        [COMMAND_CACHE] = "cache"};
    const struct option_row *other = row_of(COMMAND_EVERY, flag, len);
    for (unsigned c = COMMAND_SERVE; other && c <= COMMAND_CACHE; c *= 2)
        if (other->commands & c)
            return err_set(e, -EINVAL, "--%s is an option of %s, not of %s; see plateau %s --help",
                           other->name, names[c], names[command], names[command]);
    return err_set(e, -EINVAL, "there is no option --%.*s; see plateau %s --help", (int)len, flag,
                   names[command]);
}

static int read_flag(enum option_command command, int argc, char **argv, int *at, struct options *o,
                     struct err *e)
{
    const char *text = argv[*at] + 2, *equals = strchr(text, '=');
    size_t len = equals ? (size_t)(equals - text) : strlen(text);
    const struct option_row *row = row_of((unsigned)command, text, len);
    if (!row)
        return unknown_flag(command, text, len, e);
    if (row->kind == OPTION_FLAG)
        return set(row, equals ? equals + 1 : "1", o, e);
    if (!equals && *at + 1 >= argc)
        return err_set(e, -EINVAL, "--%s needs a value: %s", row->name, row->value);
    return set(row, equals ? equals + 1 : argv[++*at], o, e);
}

/* What names a file has to be known before the others are read: from the command line, else the environment. */
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

static int read_files(int argc, char **argv, struct options *o, struct err *e)
{
    const char *config = find_early(argc, argv, "--config", "PLATEAU_CONFIG");
    const char *env = find_early(argc, argv, "--env-file", "PLATEAU_ENV_FILE");
    int r = config ? read_file(config, o, e) : 0;
    env = env ? env : o->env_file;
    if (r == 0 && env && (r = env_file_read(env, env_file_entry, o, e)) < 0)
        return err_prefix(e, r, "--env-file");
    return r;
}

int options_parse(enum option_command command, int argc, char **argv, struct options *ret, struct err *e)
{
    int r = set_defaults(ret, e);
    if (r == 0)
        r = read_files(argc, argv, ret, e);
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

/* --- what has changed, what is not shown --- */

static void hide(char *text)
{
    while (*text)
        *text++ = '*';
}

void options_hide(enum option_command command, int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        char *equals = strchr(argv[i], '=');
        if (strncmp(argv[i], "--", 2) != 0)
            continue;
        size_t len = equals ? (size_t)(equals - argv[i]) : strlen(argv[i]);
        const struct option_row *row = row_of((unsigned)command, argv[i] + 2, len - 2);
        if (!row || row->kind == OPTION_FLAG)
            continue;
        char *value = equals ? equals + 1 : i + 1 < argc ? argv[++i] : NULL;
        if (value && (row->commands & SECRET))
            hide(value);
    }
}

#define VALUE_BYTES 256

static void show_list(const char *const *list, char ret[VALUE_BYTES])
{
    size_t n = 0;
    ret[0] = 0;
    for (uint32_t i = 0; list[i] && n < VALUE_BYTES; i++)
        n += (size_t)snprintf(ret + n, VALUE_BYTES - n, i ? ",%s" : "%s", list[i]);
}

static void show_value(const struct option_row *row, const struct options *o, char ret[VALUE_BYTES])
{
    const void *field = (const char *)o + row->offset;
    switch (row->kind) {
    case OPTION_TEXT:
        snprintf(ret, VALUE_BYTES, "%s", *(const char *const *)field ? *(const char *const *)field : "");
        break;
    case OPTION_LIST:
        show_list(field, ret);
        break;
    case OPTION_FLAG:
        snprintf(ret, VALUE_BYTES, "%s", *(const bool *)field ? "yes" : "no");
        break;
    case OPTION_REAL:
        snprintf(ret, VALUE_BYTES, "%g", *(const double *)field);
        break;
    case OPTION_COUNT:
    case OPTION_BYTES:
        snprintf(ret, VALUE_BYTES, "%llu", (unsigned long long)*(const uint64_t *)field);
        break;
    }
}

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

static bool same_list(const char *const *a, const char *const *b)
{
    uint32_t i = 0;
    while (a[i] && b[i] && strcmp(a[i], b[i]) == 0)
        i++;
    return !a[i] && !b[i];
}

static bool is_same(const struct option_row *row, const struct options *a, const struct options *b)
{
    const void *x = (const char *)a + row->offset, *y = (const char *)b + row->offset;
    switch (row->kind) {
    case OPTION_TEXT:
        return same_text(*(const char *const *)x, *(const char *const *)y);
    case OPTION_LIST:
        return same_list(x, y);
    case OPTION_FLAG:
        return *(const bool *)x == *(const bool *)y;
    case OPTION_REAL:
        return *(const double *)x == *(const double *)y;
    case OPTION_COUNT:
    case OPTION_BYTES:
        break;
    }
    return *(const uint64_t *)x == *(const uint64_t *)y;
}

void options_compare(enum option_command command, const struct options *from, const struct options *to,
                     void (*tell)(void *arg, const struct options_change *change), void *arg)
{
    char was[VALUE_BYTES] = "*", is[VALUE_BYTES] = "*";
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        const struct option_row *row = &rows[i];
        if (!(row->commands & (unsigned)command) || is_same(row, from, to))
            continue;
        bool secret = row->commands & SECRET;
        if (!secret) {
            show_value(row, from, was);
            show_value(row, to, is);
        }
        tell(arg, &(struct options_change){row->name, secret ? "*" : was, secret ? "*" : is,
                                           row->commands & LIVE});
    }
}

/* --- help --- */

#define HELP_COLUMN 30 /* where the text of an option begins */
#define HELP_WIDTH  100

/* Words from HELP_COLUMN on, in as many lines as they take. What stands in brackets is one word. */
static void help_words(const char *text, unsigned *column, FILE *f)
{
    while (*text) {
        unsigned len = (unsigned)(text[0] == '[' ? strcspn(text, "]") + 1 : strcspn(text, " "));
        bool first = *column == HELP_COLUMN;
        if (!first && *column + 1 + len > HELP_WIDTH) {
            fprintf(f, "\n%*s", HELP_COLUMN, "");
            *column = HELP_COLUMN;
            first = true;
        }
        fprintf(f, "%s%.*s", first ? "" : " ", (int)len, text);
        *column += len + !first;
        text += len + (text[len] == ' ');
    }
}

static void help_row(const struct option_row *row, FILE *f)
{
    char flag[64], otherwise[64];
    unsigned column = HELP_COLUMN;
    int n = snprintf(flag, sizeof(flag), "  --%s%s%s", row->name, row->value ? " " : "",
                     row->value ? row->value : "");
    fprintf(f, "%s%*s", flag, n < HELP_COLUMN ? HELP_COLUMN - n : 1, "");
    help_words(row->help, &column, f);
    snprintf(otherwise, sizeof(otherwise), "[default: %s]", row->otherwise ? row->otherwise : "");
    if (row->otherwise)
        help_words(otherwise, &column, f);
    fputc('\n', f);
}

static void help_section(FILE *f)
{
    unsigned column = HELP_COLUMN;
    fprintf(f, "\nOf one model, in a section [model NAME] of the file of --config:\n%*s", HELP_COLUMN, "");
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        if (rows[i].commands & SECTION)
            help_words(rows[i].name, &column, f);
    fputc('\n', f);
}

void options_help(enum option_command command, FILE *f)
{
    for (unsigned group = 0; group < COUNT_OF(group_names); group++) {
        bool named = false;
        for (size_t i = 0; i < COUNT_OF(rows); i++) {
            if (rows[i].group != group || !(rows[i].commands & (unsigned)command))
                continue;
            if (!named)
                fprintf(f, "\n%s:\n", group_names[group]);
            named = true;
            help_row(&rows[i], f);
        }
    }
    if (command == COMMAND_SERVE)
        help_section(f);
}
