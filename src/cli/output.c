/* output.c - stdio remembers that a write failed, but not why: that is kept here, of the first failure. */
#include "cli/output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void output_begin(void)
{
    /* A descriptor for the other direction: what uses it gets EBADF, as without it. */
    static const int flags[] = {O_WRONLY, O_RDONLY, O_WRONLY};
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF && open("/dev/null", flags[fd]) < 0)
            return;
}

static int first_error;

static int note(int r)
{
    if (r != 0 && first_error == 0)
        first_error = errno ? errno : EIO;
    return r;
}

int output_flush(void)
{
    int r = note(fflush(stdout));
    return ferror(stdout) ? EOF : r;
}

int output_error(void)
{
    return first_error;
}

bool output_failed(void)
{
    return ferror(stdout) != 0 || first_error != 0;
}

int output_end(int status)
{
    note(fflush(stdout));
    bool failed = output_failed();
    if (failed && !first_error) {
        /* A write within printf() failed, and its reason is gone: one more byte fails for the same. */
        fputc('\n', stdout);
        note(fflush(stdout));
    }
    /* Some file systems report a full disk when the file is closed. */
    failed |= note(fclose(stdout)) != 0;
    if (!failed)
        return status;
    fprintf(stderr, "plateau: standard output could not be written%s%s\n", first_error ? ": " : "",
            first_error ? strerror(first_error) : "");
    return status ? status : 1;
}
