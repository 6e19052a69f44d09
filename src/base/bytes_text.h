/* bytes_text.h - sizes for people: "412 B", "52.9 MiB". */
#ifndef PLATEAU_BASE_BYTES_TEXT_H
#define PLATEAU_BASE_BYTES_TEXT_H

#include <stdint.h>

struct bytes_text {
    char text[32];
};
struct bytes_text bytes_text(uint64_t bytes);

#endif
