/* none.h - the index that stands for nothing. */
#ifndef PLATEAU_BASE_NONE_H
#define PLATEAU_BASE_NONE_H

#include <stdint.h>

#define NONE UINT32_MAX /* no page, slot, node or entry: tables have fewer */

#endif
