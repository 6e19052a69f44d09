/* interrupt.h - Ctrl-C as a flag that the main thread looks at, instead of the end of the program. */
#ifndef PLATEAU_CLI_INTERRUPT_H
#define PLATEAU_CLI_INTERRUPT_H

#include <stdbool.h>

/* From now on SIGINT sets the flag, and a read that waits ends with EINTR. Takes SIGALRM. */
void interrupt_catch(void);
bool interrupt_pending(void);
/* An interrupt is pending, or standard output has failed: an answer ends. */
bool interrupt_ends_answer(void);
/* Was there one? The flag is down afterwards. */
bool interrupt_take(void);

#endif
