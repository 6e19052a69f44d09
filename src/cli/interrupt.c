/* interrupt.c - one flag, written by the handler alone while it is up. */
#include "cli/interrupt.h"

#include <signal.h>

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal)
{
    (void)signal;
    interrupted = 1;
}

void interrupt_catch(void)
{
    struct sigaction action = {.sa_handler = on_interrupt}; /* no SA_RESTART: a waiting read ends */
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
}

bool interrupt_pending(void)
{
    return interrupted;
}

bool interrupt_take(void)
{
    bool was = interrupted;
    interrupted = 0;
    return was;
}
