/* thread_nice.c - on Linux setpriority() of process 0 is the calling thread's. */
#include "base/threads/thread_nice.h"

#include <errno.h>
#include <sys/resource.h>

void thread_nice(int more)
{
    int kept = errno;
    errno = 0;
    int now = getpriority(PRIO_PROCESS, 0);
    if (errno == 0)
        (void)setpriority(PRIO_PROCESS, 0, now + more);
    errno = kept;
}
