/* soft_int_amx.c - the integer products of the AMX tier over tiles in plain C. An executable's own object
 * takes precedence over the one in the library. */
#include "soft_tiles.h"

#include "kernel/kern_int_amx.c"
