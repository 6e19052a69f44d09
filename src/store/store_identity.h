/* store_identity.h - whose pages a file of the SSD tier has. */
#ifndef PLATEAU_STORE_STORE_IDENTITY_H
#define PLATEAU_STORE_STORE_IDENTITY_H

#include <stdint.h>

#define STORE_LAYOUT_BYTES 192

/* Nothing else may be read into the model's pools. */
struct store_identity {
    uint8_t fingerprint[32];         /* digest of the model's content */
    char layout[STORE_LAYOUT_BYTES]; /* layout and type of K, V and states, arithmetic; padded with zeros */
};

#endif
