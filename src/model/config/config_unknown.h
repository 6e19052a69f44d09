/* config_unknown.h - keys of config.json that the program does not know: no declaration reads them, and they
 * are not in the table of those that change no result. The log names them, because the answers may differ
 * from those of a program that reads them. */
#ifndef PLATEAU_MODEL_CONFIG_UNKNOWN_H
#define PLATEAU_MODEL_CONFIG_UNKNOWN_H

#include <jansson.h>
#include <stddef.h>

/* The objects that have a table. */
enum config_object { CONFIG_OF_MODEL, CONFIG_OF_ROPE, CONFIG_OF_QUANTIZATION, CONFIG_OF_VISION };

/* Appends the unknown keys of `object` (may be NULL) to the text `ret`: "'foo', 'rope_parameters.bar'". A
 * null asks for nothing and is not named; what has no room becomes "...". `asked` has the keys that were
 * looked up. `prefix` stands in front of each key. */
void config_unknown_add(const json_t *object, const json_t *asked, enum config_object kind,
                        const char *prefix, char *ret, size_t bytes_max);

#endif
