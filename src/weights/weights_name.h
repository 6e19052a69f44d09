/* weights_name.h - what the names of GGUF files say: NAME.gguf is a model, NAME-00001-of-0000N.gguf a part of
 * one, and mmproj in a name marks the vision encoder of another file. Pure, any thread. */
#ifndef PLATEAU_WEIGHTS_NAME_H
#define PLATEAU_WEIGHTS_NAME_H

#include "base/slice.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct dirent;

#define WEIGHTS_PARTS_MAX 4096

/* *.gguf */
bool weights_name_is(const char *name);
/* mmproj*.gguf and *.mmproj*.gguf, *-mmproj-*.gguf: the vision encoder of a model. */
bool weights_name_is_mmproj(const char *name);
/* *.gguf with a model's weights. */
bool weights_name_is_weights(const char *name);
/* The length of NAME in NAME-00002-of-00003.gguf; 0 if it is not a part. */
size_t weights_name_part(const char *name, uint32_t *index, uint32_t *count);
/* Writes NAME-00002-of-00003.gguf into `ret`; index from 1. */
void weights_name_of_part(const char *name, size_t len, uint32_t index, uint32_t count, char *ret,
                          size_t bytes);
/* Whether two names are parts of one model. */
bool weights_name_same_model(const char *a, const char *b);
/* The length of the model's name in that of its file: without .gguf and the number of the part. */
size_t weights_name_model(const char *name);
/* The quantisation at the end of that name, as it stands there: Q4_K_M, UD-Q4_K_XL, bf16. Empty: the name
 * ends otherwise. A part of `name`, before which folders may stand. */
struct slice weights_name_quant(const char *name);
/* Whether names[index] has weights and no earlier name is a part of the same model. `names` are sorted. */
bool weights_name_leads(struct dirent *const *names, int index);

#endif
