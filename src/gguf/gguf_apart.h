/* gguf_apart.h - numbers that differ between layers with a window and the others. Inside gguf/ only.
 * Architectures whose row has no gguf_arch.apart pass. */
#ifndef PLATEAU_GGUF_GGUF_APART_H
#define PLATEAU_GGUF_GGUF_APART_H

struct gguf_meta;

/* Sets heads, kinds and the two rotations. Called after gguf_rope_copy() and gguf_layers_copy_windows().
 * 0, -EINVAL, -ENOTSUP, -ENOMEM. */
int gguf_apart_copy(struct gguf_meta *v);

#endif
