/* interrupt.c - one flag, and an alarm behind it.
 *
 * A signal that comes just before a read begins to wait does not end that read: it would wait with the flag
 * up. So the handler asks for an alarm a second later, which does; taking the flag calls it off. */
#include "cli/interrupt.h"

#include <signal.h>
#include <unistd.h>

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal)
{
    if (signal == SIGINT)
        interrupted = 1;
    if (interrupted)
        alarm(1);
}

void interrupt_catch(void)
{
    struct sigaction action = {.sa_handler = on_interrupt}; /* no SA_RESTART: a waiting read ends */
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGALRM, &action, NULL);
}

bool interrupt_pending(void)
{
    return interrupted;
}

bool interrupt_take(void)
{
    bool was = interrupted;
    interrupted = 0;
    if (was)
        alarm(0);
    return was;
}
