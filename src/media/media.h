/* media.h - the media service: turns the addresses and bytes of requests into images for engines.
 *
 * Threads of its own do what takes long. One fetches from the network (with --allow-remote-media). The others
 * read files, decode, resize, and read the frames that a video's process writes. The images and videos of a
 * request are one task:
 *
 *     made ──▶ (fetching ──▶) waiting ◀──▶ working ──▶ done
 *     prep              the service's queue           its exchange's again
 *
 * After each image or video a task waits again: media_queue.h has the order.
 *
 * The exchange holds the task from media_task_create() to media_task_leave(), which may be called at any time
 * and from any thread, and never waits. A queued task is freed at once. A worker stops at its next check (a
 * fetch when it wakes, a decoder within a few rows; a video's process is killed) and frees the task. No other
 * component refers to a task, so none can remain.
 *
 * Memory: all bytes are charged to the account `media`, limited by the plan: tasks, encoded bytes, decoders'
 * scratch memory, and images until the last job that uses them ends. Its child `video` has the memory that a
 * video's process may take and the in-memory file that it reads. Queued bytes are at most half the limit. A
 * refused reservation fails its own request, never another. */
#ifndef PLATEAU_MEDIA_MEDIA_H
#define PLATEAU_MEDIA_MEDIA_H

#include "base/err.h"
#include "memory/ledger.h"

struct image;
struct media;
struct media_task;
struct model_vision;

enum media_kind { MEDIA_IMAGE, MEDIA_VIDEO };

/* Why a part, or a task, was refused. */
enum media_fault {
    MEDIA_FAULT_MEMORY, /* a reservation of `wanted` bytes was refused; without a message */
    MEDIA_FAULT_INVALID,
    MEDIA_FAULT_TOO_LARGE, /* over a limit of one image or video */
    MEDIA_FAULT_NOT_ALLOWED,
    MEDIA_FAULT_FETCH,
    MEDIA_FAULT_UNSUPPORTED,
    MEDIA_FAULT_BUSY /* the queue is full */
};

#define MEDIA_AT_BYTES 64

struct media_failure {
    enum media_fault fault;
    char at[MEDIA_AT_BYTES]; /* the part; empty: the whole task */
    char message[768];       /* a sentence for the client: UTF-8 without control characters */
    size_t wanted;
    uint32_t retry_after_s; /* seconds after MEDIA_FAULT_BUSY */
};

/* One image or video to be read. */
struct media_input {
    enum media_kind kind;
    const char *at; /* its name in sentences: "messages[0].content[1]" */
    bool listed;    /* a video as a list of its frames, else url_count is 1 */
    double fps;     /* a video's sampled frames per second; a list's own frames per second. NAN: not given */
    uint32_t url_count;
    struct slice (*url)(const void *owner, uint32_t index);
    const void *owner;
};

/* An option of 0 takes the default that stands beside it. */
struct media_opts {
    bool on;                 /* false: images are refused, and the other options have no effect */
    struct account *account; /* `media` */
    struct account *threads; /* stacks; NULL: `account` pays */
    uint32_t thread_count;   /* that decode, apart from one for small images; 1 or 2 by processors */
    uint32_t tasks_max;      /* that wait or are being fetched; 256 */
    uint32_t parts_max;      /* images and videos of one request; 16 */
    size_t bytes_max;        /* encoded, of each source; 64 MiB */
    uint64_t pixels_max;     /* limit of an image or a frame before resizing; 64000000 */
    uint32_t timeout_s;      /* for fetching one source, and for one video; 60 */
    uint32_t video_s_max;    /* duration of a video; 3600 */
    uint32_t frames_max;     /* sampled from a video; 0: the model's own limit */
    bool allow_remote;
    const char *dir;         /* clients may name files below it; NULL: none */
    void (*done)(void *arg); /* called when a task is done, on any thread */
    void *arg;
};

/* Bytes of its threads' stacks. */
uint64_t media_stack_bytes(const struct media_opts *opts);
/* 0, an error of opening `dir`, -ENOMEM, or an error of starting a thread. */
int media_create(const struct media_opts *opts, struct media **ret, struct err *e);
/* Ends the threads. All tasks must have been left. */
void media_stop(struct media *m);
/* After the last image has been freed. NULL is fine. */
void media_free(struct media *m);

/* Makes a task of `count` images and videos, at most parts_max. Bytes of data URLs are checked and copied, so
 * the caller may drop them. `vision` is copied. False: `why` has the reason. Any thread. */
bool media_task_create(struct media *m, const struct media_input *inputs, uint32_t count,
                       const struct model_vision *vision, struct media_task **ret, struct media_failure *why);
/* Hands the task to the service. False: the queue is full, see `why`. */
bool media_submit(struct media_task *t, uint64_t tenant, struct media_failure *why);
/* NULL is fine. */
void media_task_leave(struct media_task *t);

enum media_state { MEDIA_MADE, MEDIA_FETCHING, MEDIA_WAITING, MEDIA_WORKING, MEDIA_DONE };
enum media_state media_task_state(const struct media_task *t);
/* Clock time since which the task has waited for its fetch, or its first decoding, to begin. 0: it does not
 * wait for either. */
uint64_t media_task_waits_since_ns(const struct media_task *t);
/* Returns, for a done task, the reason why a part is not an image; else NULL. */
const struct media_failure *media_task_failure(const struct media_task *t);

/* Result of one part of a task that is done and has not failed. */
struct media_result {
    enum media_kind kind;
    /* One for an image, or its tiles; for a video one for each pair of frames. Owned by the task. */
    struct image *const *images;
    const double *seconds; /* times of a video's pairs */
    uint32_t count;
    uint32_t columns; /* columns of an image's tiles, after which comes the whole image; 0: it has none */
};
uint32_t media_task_parts(const struct media_task *t);
struct media_result media_task_result(const struct media_task *t, uint32_t part);

/* Progress of a task. Any thread that holds the task. */
struct media_progress {
    uint32_t parts_done, parts;
    uint64_t bytes_fetched, frames_decoded, frames; /* frames: of the video under work, once it is known */
};
struct media_progress media_task_progress(const struct media_task *t);

/* Counters never fall; the first four are present values. */
struct media_numbers {
    uint32_t waiting, working, fetching;
    uint64_t queued_bytes;
    uint64_t tasks, tasks_failed,
        tasks_left; /* ended tasks: all, failed ones, ones left before they were done */
    uint64_t images, videos, frames, bytes_fetched, addresses_refused;
    uint64_t work_ns;
};
void media_numbers(struct media *m, struct media_numbers *ret);
/* Retry-After for a request that found the queue full: 1 to 60 seconds. */
uint32_t media_retry_after_s(struct media *m);
struct account *media_account(const struct media *m);
const struct media_opts *media_options(const struct media *m);

/* For tests: the server may connect to every address. In media_address.c. */
extern bool media_allows_all_addresses;

#endif
