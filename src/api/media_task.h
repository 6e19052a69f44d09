/* media_task.h - what the files of the media service share: the service and its tasks. Not for others. */
#ifndef PLATEAU_API_MEDIA_TASK_H
#define PLATEAU_API_MEDIA_TASK_H

#include "api/media.h"
#include "api/media_bytes.h"
#include "api/media_queue.h"
#include "base/list.h"
#include "base/thread_stack.h"
#include "vision/smart_size.h"

#include <pthread.h>
#include <stdatomic.h>

#define MEDIA_THREADS_MAX 16
#define MEDIA_AT_BYTES    64

enum media_origin { MEDIA_FROM_BYTES, MEDIA_FROM_NETWORK, MEDIA_FROM_FILE };

struct media_source {
    enum media_origin origin;
    const char *url;          /* of the task's arena; NULL: bytes */
    struct media_bytes bytes; /* there, or fetched; gone when they have been decoded */
    uint32_t part;
};

struct media_part {
    enum request_media_kind kind;
    char at[MEDIA_AT_BYTES];
    bool listed; /* a video as a list of frames: each source is one */
    double fps;  /* NAN: not given */
    struct media_source *sources;
    uint32_t source_count;
    uint64_t cost_ns; /* estimated time of its decoding */
    /* The result. */
    struct image **images;
    double *seconds;
    uint32_t count, room;
};

struct media_task {
    /* Constant. */
    struct media *media;
    struct arena *arena; /* the task and all its tables lie in it */
    struct model_vision vision;
    struct media_part *parts;
    uint32_t part_count;
    struct media_source *sources;
    uint32_t source_count;
    uint64_t bytes; /* of sources that came with it */
    bool remote, video;

    /* Of the service's lock. */
    struct list link;                /* in the list of the fetching thread */
    struct media_entry entry;        /* in the queue for a decoding thread */
    bool left;                       /* nobody waits for it any more */
    _Atomic int state;               /* enum media_state; read by anybody */
    _Atomic uint64_t waits_since_ns; /* 0: it is being fetched or worked on, or done; likewise */

    atomic_bool stop; /* whoever works on it stops */
    /* Who works on it, then who holds it. */
    struct reject why;
    bool failed;
    size_t wanted;
    uint64_t work_ns;   /* so far */
    uint32_t part_next; /* the first part that has not been decoded */
    /* Progress. */
    _Atomic uint32_t parts_done;
    _Atomic uint64_t bytes_fetched, frames_decoded, frames;
};

struct media {
    /* Set by media_create(), then constant. */
    struct media_opts opts;
    struct charge charge;  /* of opts.account, remembers what was refused; of images too */
    struct account *video; /* what videos' processes take */
    int dir;               /* opts.dir, -1: none */
    char *dir_path;        /* the same as the system names it */
    bool has_ffmpeg;
    uint64_t limit;
    struct fetch *fetch;                      /* NULL: nothing is fetched */
    pthread_t threads[MEDIA_THREADS_MAX + 1]; /* the first decodes small images only */
    struct thread_stack stacks[MEDIA_THREADS_MAX + 1];
    uint32_t thread_count;

    pthread_mutex_t lock;
    pthread_cond_t work;
    /* Of the lock. */
    bool stopping;
    struct media_queue waiting;
    uint32_t working_count, fetching_count;
    uint32_t videos_now, videos_max; /* so that one thread is always there for images */
    uint64_t queued_bytes;
    uint64_t task_ns; /* of work, as of late */
    struct media_numbers numbers;

    _Atomic uint64_t images_made, videos_made, frames_made, bytes_fetched, addresses_refused;
};

/* What the charge refused last on this thread. */
size_t media_refused_bytes(void);

/* Refuses a part: "messages[0].content[1] ...". Returns false. */
bool media_refuse(struct media_task *t, const struct media_part *p, enum reject_kind kind, const char *format,
                  ...) __attribute__((format(printf, 4, 5)));
/* What a call that filled `e` returned: -ENOMEM is nobody's fault but memory's, -ECANCELED needs no words,
 * else 400. Returns false. */
bool media_fail(struct media_task *t, const struct media_part *p, int r, const struct err *e);

/* media_fetch.c: all sources from the network; then the task goes to media_fetched(). A thread of its own. */
int fetch_create(struct media *m, struct fetch **ret);
void fetch_free(struct fetch *f);
uint64_t fetch_stack_bytes(void);
/* With the service's lock. */
void fetch_put(struct fetch *f, struct media_task *t);
/* With the service's lock: true, and nothing has been fetched for it; else its thread is woken, to see that
 * it has been told to stop. */
bool fetch_take_back(struct fetch *f, struct media_task *t);
/* With the lock not held: its sources are here, or it has failed. */
void media_fetched(struct media_task *t);

/* media_file.c: opens the file of a file: URL, below the directory of --media-dir, whatever links and dots
 * are on the way. Returns the descriptor of a regular file, or what is wrong with words in e. */
int media_file_open(const struct media *m, struct slice url, struct err *e);
/* How long it is, if that is more than nothing and at most bytes_max; ret may be NULL. */
int media_file_check(int fd, size_t bytes_max, size_t *ret, struct err *e);
/* Reads all of it, at most bytes_max. */
int media_file_read(int fd, size_t bytes_max, const struct charge *charge, struct media_bytes *ret,
                    struct err *e);

/* media_image.c: estimates the time of each part's decoding, from headers where they are there. */
void media_measure(struct media_task *t);
/* One part to its images. False: the task has failed. */
bool media_make_image(struct media_task *t, struct media_part *p);
bool media_make_frames(struct media_task *t, struct media_part *p);
/* media_video.c */
bool media_make_video(struct media_task *t, struct media_part *p);
/* Room for so many images and their times. */
bool media_make_room(struct media_task *t, struct media_part *p, uint32_t count);
/* Of a video that is looked at: the model's limit, or the operator's. */
uint32_t media_frames_max(const struct media_task *t);
/* What so many frames of a video are resized within: all together, and none beyond what an image may
 * have. */
struct smart_bounds media_video_bounds(const struct media_task *t, uint32_t frames);
/* Nobody holds it. */
void media_task_free(struct media_task *t);

#endif
