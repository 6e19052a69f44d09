/* safetensors.h - limits of the format as we read it; the parser itself is declared in checkpoint.h. */
#ifndef PLATEAU_WEIGHTS_SAFETENSORS_H
#define PLATEAU_WEIGHTS_SAFETENSORS_H

#define SAFETENSORS_HEADER_BYTES_MAX 100000000ull /* what the reference implementation allows */
#define SAFETENSORS_COUNT_MAX        1000000
#define SAFETENSORS_NAME_MAX         512

#endif
