/* hub_name.h - names of models and files as the Hugging Face hub writes them. Pure; any thread. */
#ifndef PLATEAU_HUB_HUB_NAME_H
#define PLATEAU_HUB_HUB_NAME_H

#include "base/slice.h"

#define HUB_ID_BYTES       200
#define HUB_REVISION_BYTES 128
#define HUB_QUANT_BYTES    128
#define HUB_NAME_BYTES     (HUB_ID_BYTES + HUB_REVISION_BYTES + HUB_QUANT_BYTES) /* bytes of its text */
#define HUB_FOLDER_HEAD    "models--"
#define HUB_FILE_BYTES_MAX 1024 /* bytes of a file's name with its folders */
#define HUB_FILE_DEPTH_MAX 4    /* parts of it */

struct hub_name {
    char id[HUB_ID_BYTES];             /* ORG/NAME, or NAME alone */
    char revision[HUB_REVISION_BYTES]; /* "main" unless given */
    char quant[HUB_QUANT_BYTES];       /* which GGUF model of the repository; "" unless given */
};

/* "ORG/NAME[@REVISION][:QUANT]". Parts have letters, digits and . _ - and do not begin with a dot or a dash;
 * "--" and ".." occur nowhere. QUANT has letters, digits and . _ - +. False: the text has another form, and
 * *ret is untouched. */
bool hub_name_parse(const char *text, struct hub_name *ret);
/* From a folder's name: "models--ORG--NAME", or "models--NAME". */
bool hub_name_of_folder(const char *folder, struct hub_name *ret);
/* "models--ORG--NAME" */
void hub_name_folder(const struct hub_name *n, char ret[HUB_ID_BYTES + 16]);
/* The text that hub_name_parse() reads; the revision main is left out. */
void hub_name_text(const struct hub_name *n, char ret[HUB_NAME_BYTES]);
/* NAME */
const char *hub_name_last(const struct hub_name *n);
/* A name of a branch, a tag or a commit: no empty or dotted part. */
bool hub_revision_is_valid(struct slice revision);
/* 40 hexadecimal digits in lower case. */
bool hub_commit_is_valid(struct slice commit);
/* A file's name that stays below its directory: up to HUB_FILE_DEPTH_MAX parts of 1 to 255 bytes, none of
 * them "." or "..", without backslashes and control characters. */
bool hub_file_is_valid(struct slice name);

#endif
