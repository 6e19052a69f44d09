/* log_mask.h - a line of text that a terminal, a journal and a JSON exporter can take. Pure; any thread. */
#ifndef PLATEAU_BASE_LOG_MASK_H
#define PLATEAU_BASE_LOG_MASK_H

#include <stddef.h>

/* Masks in place, byte for byte. Control characters below 0x20 become blanks. Every byte of these becomes
 * '?': 0x7f, invalid UTF-8 (also a character cut by the line's end), the controls U+0080 to U+009F, and
 * the line and direction controls U+2028 to U+202E and U+2066 to U+2069. */
void log_mask(char *line, size_t len);

#endif
