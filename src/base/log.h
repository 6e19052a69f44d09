/* log.h - one line per event: time, level, event name, key=value pairs.
 *
 * Only the program logs (cli, engine, api, http at their seams); modules return their results. Any thread;
 * a line is one write to stderr, cut at 1 KiB, always valid UTF-8 without control characters. Writers
 * never wait for a slow reader: a line that does not fit into a full pipe is lost, and the next line
 * counts the losses (lines_lost=N). The fatal line, which check.c writes before it stops the process, waits
 * for room for up to a second. */
#ifndef PLATEAU_BASE_LOG_H
#define PLATEAU_BASE_LOG_H

#include <stdbool.h>

enum log_level { LOG_LEVEL_FATAL, LOG_LEVEL_ERROR, LOG_LEVEL_WARN, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

void log_set_level(enum log_level level);

enum log_format {
    LOG_FORMAT_AUTO,    /* by standard error: the journal (JOURNAL_STREAM names it), a terminal, or text */
    LOG_FORMAT_TEXT,    /* time, level, event, key=value pairs */
    LOG_FORMAT_JOURNAL, /* the priority ("<4>") in place of the time */
    LOG_FORMAT_JSON,    /* an object of strings */
    LOG_FORMAT_PEOPLE   /* for a terminal: short, and coloured unless NO_COLOR is set; not by name */
};
/* LOG_FORMAT_TEXT until then. Before other threads log. */
void log_set_format(enum log_format f);
/* "auto", "text", "journal", "json". False on anything else. */
bool log_format_parse(const char *name, enum log_format *ret);
/* "error", "warn", "info", "debug". False on anything else. */
bool log_level_parse(const char *name, enum log_level *ret);
const char *log_level_name(enum log_level level);
bool log_enabled(enum log_level level);

/* LOG_INFO("model_loaded", "model=%s bytes=%zu", id, bytes): values with spaces go in \"quotes\". */
void log_write(enum log_level level, const char *event, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#define LOG_AT(level, ...)                                                                                   \
    do {                                                                                                     \
        if (log_enabled(level))                                                                              \
            log_write(level, __VA_ARGS__);                                                                   \
    } while (0)
#define LOG_ERROR(...) LOG_AT(LOG_LEVEL_ERROR, __VA_ARGS__)
#define LOG_WARN(...)  LOG_AT(LOG_LEVEL_WARN, __VA_ARGS__)
#define LOG_INFO(...)  LOG_AT(LOG_LEVEL_INFO, __VA_ARGS__)
#define LOG_DEBUG(...) LOG_AT(LOG_LEVEL_DEBUG, __VA_ARGS__)

#endif
