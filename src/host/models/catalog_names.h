/* catalog_names.h - what a model is called unless something says otherwise: one name in listings, plans,
 * servers and conversations. */
#ifndef PLATEAU_HOST_CATALOG_NAMES_H
#define PLATEAU_HOST_CATALOG_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The models that come with the program: the bundled one, and the starter model of tools/fetch-starter. */
#define CATALOG_BUNDLED "canary"
#define CATALOG_STARTER "smollm2"

/* ORG/NAME or ORG/NAME:QUANT of the hub's cache; else the name of a GGUF or packed file without its ending,
 * or of a directory. Looks into a snapshot of the hub's cache for the names of its GGUF files. */
void catalog_name_of(const char *path, char *ret, size_t bytes);

/* *.plateau */
bool catalog_is_packed(const char *name);

/* The id of such a file: its name without .gguf and the number of a part, or without .plateau. The names of
 * `folders` directories above it stand before it. False: the path is not that of such a file, or is longer
 * than `bytes`. */
bool catalog_file_id(const char *path, unsigned folders, char *ret, size_t bytes);

/* The name of a model among others. */
struct catalog_named {
    const char *path;
    char *id;
    size_t id_bytes;
    bool has_id;  /* the id is one that another may not have */
    bool renames; /* a file that is renamed where others have its id */
    bool twin;    /* written by the function */
};
/* A file whose id others have too is called DIRECTORY/NAME, then with two directories. */
void catalog_name_twins(struct catalog_named *list, uint32_t count);

#endif
