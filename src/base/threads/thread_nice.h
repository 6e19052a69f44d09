/* thread_nice.h - a thread that leaves the processor to others, for good. */
#ifndef PLATEAU_BASE_THREAD_NICE_H
#define PLATEAU_BASE_THREAD_NICE_H

/* Raises the calling thread's nice value by `more`. It keeps a share: beside a thread of nice 0 one of
 * nice 10 has a tenth of a processor. Without a privilege there is no way back. A refusal by the system is
 * ignored. */
void thread_nice(int more);

#endif
