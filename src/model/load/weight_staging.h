/* weight_staging.h - memory in which pieces of a checkpoint's tensors lie while they are packed.
 *
 * Each packer of a load has one (packers.h), as large as the plan says: WEIGHT_STAGING_BYTES, less where all
 * matrices are smaller, more where a single row or a vector is larger or a matrix is transposed. So it does
 * not grow with the model. A piece is some rows of a matrix with their scales and biases, or a whole vector.
 * It is valid until the next read. One thread. */
#ifndef PLATEAU_MODEL_WEIGHT_STAGING_H
#define PLATEAU_MODEL_WEIGHT_STAGING_H

#include "memory/ledger.h"

struct checkpoint;
struct err;
struct linear_source;
struct tensor;

#define WEIGHT_STAGING_BYTES ((size_t)256 << 10)
/* For a transposed matrix: a piece takes a part of every line of the tensor, which is longer in a larger
 * stage. */
#define WEIGHT_STAGING_TRANSPOSED_BYTES ((size_t)4 << 20)

struct weight_staging {
    const struct checkpoint *checkpoint;
    struct account *account; /* may be NULL */
    char *memory;
    size_t bytes;
};

/* Returns the bytes of a stage that reading this matrix (rank 2) or this vector takes. */
uint64_t weight_staging_matrix_bytes(const struct linear_source *s);
uint64_t weight_staging_vector_bytes(const struct tensor *t);
/* As `weight_staging_matrix_bytes()`, but with all rows of the matrix in one piece. */
uint64_t weight_staging_whole_bytes(const struct linear_source *s);

/* 0, or -ENOMEM. */
int weight_staging_init(struct weight_staging *s, const struct checkpoint *c, struct account *account,
                        uint64_t bytes);
/* Fine on a zeroed struct. */
void weight_staging_done(struct weight_staging *s);

/* The most rows of a piece: the stage's room for them, and at least one. */
uint64_t weight_staging_rows_max(const struct weight_staging *s, const struct linear_source *from);
/* A piece of `from`, from row `first` on: *ret->out rows, at least one and at most `most`, as room allows.
 * They are in order, whatever `from` was. 0 or an error of checkpoint_read(). */
int weight_staging_rows(struct weight_staging *s, const struct linear_source *from, uint64_t first,
                        uint64_t most, struct linear_source *ret, struct err *e);
int weight_staging_vector(struct weight_staging *s, const struct tensor *from, struct tensor *ret,
                          struct err *e);

#endif
