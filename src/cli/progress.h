/* progress.h - shows the progress of a load on standard error.
 *
 * On a terminal one line that is overwritten and erased at the end; elsewhere a log line now and then. A
 * short load prints nothing. Called by the loading thread alone. */
#ifndef PLATEAU_CLI_PROGRESS_H
#define PLATEAU_CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
    const char *what;  /* the model's name; outlives this */
    const char *doing; /* "Loading" */
    bool terminal, drawn;
    uint64_t started_ns, shown_ns;
    unsigned shown_percent;
};

void progress_init(struct progress *p, const char *what, const char *doing);
void progress_show(struct progress *p, uint64_t bytes_done, uint64_t bytes_total);
/* Takes the line away. */
void progress_done(struct progress *p);

#endif
