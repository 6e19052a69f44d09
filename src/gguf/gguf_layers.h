/* gguf_layers.h - what differs between the layers of a GGUF file. Inside gguf/ only. Architectures without
 * such lists pass. */
#ifndef PLATEAU_GGUF_GGUF_LAYERS_H
#define PLATEAU_GGUF_GGUF_LAYERS_H

struct gguf_meta;

/* Each returns 0, -EINVAL or -ENOTSUP.
 * Which layers have a window, where a list says so, or a number of which each last layer has none. */
int gguf_layers_copy_windows(struct gguf_meta *v);
/* Which layers are delta nets, where a list says so. */
int gguf_layers_copy_recurrent(struct gguf_meta *v);
/* Layers without heads of keys are of another kind, or of a third one if they have an MLP. */
int gguf_layers_copy_kinds(struct gguf_meta *v);
/* Heads of two sizes, and MLPs of two widths. */
int gguf_layers_copy_two_sizes(struct gguf_meta *v);

/* Sets how many layers at the begin are dense, as gguf_arch.dense says. */
int gguf_layers_count_dense(struct gguf_meta *v);
/* Sets bounds of activations, as gguf_arch.limits says. */
int gguf_layers_copy_limits(struct gguf_meta *v);
/* Sets the numbers of xIELU, as gguf_arch.xielu says: a list of each, of all layers. */
int gguf_layers_copy_xielu(struct gguf_meta *v);

#endif
