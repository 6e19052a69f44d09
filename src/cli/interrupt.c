/* interrupt.c - one flag, and an alarm as a second chance.
 *
 * A signal that arrives just before a read begins does not end that read: it would block with the flag
 * set. So the handler sets an alarm a second later, which ends it; taking the flag cancels the alarm. */
#include "cli/interrupt.h"

#include "cli/output.h"

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

bool interrupt_ends_answer(void)
{
    return interrupted || output_failed();
}

bool interrupt_take(void)
{
    bool was = interrupted;
    interrupted = 0;
    if (was)
        alarm(0);
    return was;
}
