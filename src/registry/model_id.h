/* model_id.h - room for a model's names. */
#ifndef PLATEAU_REGISTRY_MODEL_ID_H
#define PLATEAU_REGISTRY_MODEL_ID_H

/* Bytes of an id, and of a path, the zero byte included. */
#define MODEL_ID_BYTES  256
#define MODEL_DIR_BYTES 4096

#endif
