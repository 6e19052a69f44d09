/* log_format.c - a value of a JSON line is always a string, so that its type never depends on its bytes. */
#include "base/log_format.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static const char *const level_names[] = {"fatal", "error", "warn", "info", "debug"};

const char *log_level_name(enum log_level level)
{
    return level_names[level];
}

struct out {
    char *ret;
    size_t len;
};

/* Leaves room for the end of the line. */
static void put(struct out *o, const char *bytes, size_t len)
{
    if (len > LOG_FORM_BYTES - 8 - o->len)
        return;
    memcpy(o->ret + o->len, bytes, len);
    o->len += len;
}

static void puts_to(struct out *o, const char *text)
{
    put(o, text, strlen(text));
}

/* ---- for the journal ---- */

/* Priorities of syslog(3). */
static void write_journal(const struct log_parts *p, struct out *o)
{
    static const char *const priorities[] = {"<2>", "<3>", "<4>", "<6>", "<7>"};
    puts_to(o, priorities[p->level]);
    put(o, p->line + p->time_len, p->len - p->time_len);
}

/* ---- JSON ---- */

static void put_string(struct out *o, const char *text, size_t len)
{
    put(o, "\"", 1);
    for (size_t i = 0; i < len; i++) {
        if (text[i] == '"' || text[i] == '\\')
            put(o, "\\", 1);
        put(o, text + i, 1);
    }
    put(o, "\"", 1);
}

static void put_member(struct out *o, const char *name, size_t name_len, const char *value, size_t value_len)
{
    if (o->len > 1)
        put(o, ",", 1);
    put_string(o, name, name_len);
    put(o, ":", 1);
    put_string(o, value, value_len);
}

/* A quoted value ends at the first quote before a blank or the end: quotes within are not escaped. */
static size_t value_bytes(const char *at, const char *end, bool quoted)
{
    const char *c = at;
    for (; c < end; c++)
        if (quoted ? *c == '"' && (c + 1 == end || c[1] == ' ') : *c == ' ')
            break;
    return (size_t)(c - at);
}

static void write_json(const struct log_parts *p, struct out *o)
{
    const char *at = p->line + p->time_len, *end = p->line + p->len;
    put(o, "{", 1);
    put_member(o, "time", 4, p->line, p->time_len - 1);
    while (at < end) {
        size_t name = value_bytes(at, end, false);
        const char *equals = memchr(at, '=', name);
        if (!equals) { /* no pair: words alone */
            if (name > 0)
                put_member(o, "text", 4, at, name);
            at += name + 1;
            continue;
        }
        const char *value = equals + 1;
        bool quoted = value < end && *value == '"';
        value += quoted;
        size_t len = value_bytes(value, end, quoted);
        put_member(o, at, (size_t)(equals - at), value, len);
        at = value + len + 1 + quoted;
    }
    put(o, "}", 1);
}

/* ---- for people ---- */

#define DIM    "\033[2m"
#define BOLD   "\033[1m"
#define YELLOW "\033[33m"
#define RED    "\033[31m"
#define PLAIN  "\033[0m"

/* "12:03:44 warn event names and values", in local time; the level only if it is not info. */
static void write_people(const struct log_parts *p, bool colours, struct out *o)
{
    static const char *const tones[] = {RED, RED, YELLOW, "", DIM};
    const char *at = p->line + p->time_len, *end = p->line + p->len;
    const char *event = strstr(at, "event=");
    struct tm tm;
    time_t t = (time_t)p->unix_s;
    char clock[16] = "";
    if (localtime_r(&t, &tm))
        strftime(clock, sizeof(clock), "%H:%M:%S ", &tm);
    at = event && event < end ? event + strlen("event=") : at;
    puts_to(o, colours ? DIM : "");
    puts_to(o, clock);
    puts_to(o, colours ? PLAIN : "");
    puts_to(o, colours ? tones[p->level] : "");
    if (p->level != LOG_LEVEL_INFO) {
        puts_to(o, log_level_name(p->level));
        put(o, " ", 1);
    }
    puts_to(o, colours ? BOLD : "");
    size_t name = value_bytes(at, end, false);
    put(o, at, name);
    puts_to(o, colours ? PLAIN : "");
    put(o, at + name, (size_t)(end - at) - name);
}

size_t log_format_write(enum log_format f, bool colours, const struct log_parts *p, char ret[LOG_FORM_BYTES])
{
    struct out o = {ret, 0};
    if (f == LOG_FORMAT_JOURNAL)
        write_journal(p, &o);
    else if (f == LOG_FORMAT_JSON)
        write_json(p, &o);
    else if (f == LOG_FORMAT_PEOPLE)
        write_people(p, colours, &o);
    else
        put(&o, p->line, p->len);
    ret[o.len] = '\n';
    return o.len + 1;
}
