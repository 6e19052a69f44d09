/* err.h - a failure as a sentence, for the operator or client that has to act on it.
 *
 * Functions return 0 or a negative errno value. Readers of foreign data (files, requests) also fill a
 * struct err: the mistake, its place, and the limit. Modules never log; they return this. */
#ifndef PLATEAU_BASE_ERR_H
#define PLATEAU_BASE_ERR_H

struct err {
    char text[512]; /* always terminated; longer messages are cut */
};

/* Formats the message and returns `code`, so a failure is one line: `return err_set(e, -EINVAL, "...")`.
 * `e` may be NULL: then only the code is returned. */
int err_set(struct err *e, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Puts "prefix: " before the message already there. Returns `code`. */
int err_prefix(struct err *e, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
