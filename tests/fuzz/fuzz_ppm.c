/* The output of a video decoder. Invariants: no crash; a frame has the bytes that its header states, within
 * the limit; every read ends; the bytes of a frame are the ones after its header. */
#include "media/media_ppm.h"

#include "base/charge.h"
#include "base/check.h"
#include "base/clock.h"
#include "media/media_bytes.h"
#include "media/media_process.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PIXELS_MAX 4096

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int take(void *owner, size_t bytes)
{
    (void)owner;
    return bytes <= PIXELS_MAX * 16 ? 0 : -ENOMEM;
}

static void give(void *owner, size_t bytes)
{
    (void)owner, (void)bytes;
}

static void check_frame(const struct media_bytes *frame, int fd, const uint8_t *data, uint32_t width,
                        uint32_t height)
{
    size_t bytes = (size_t)width * height * 3;
    off_t end = lseek(fd, 0, SEEK_CUR);
    ASSERT(width > 0 && height > 0 && (uint64_t)width * height <= PIXELS_MAX && frame->capacity >= bytes);
    ASSERT(memcmp(frame->ptr, data + (size_t)end - bytes, bytes) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const atomic_bool go_on;
    int fd = memfd_create("frames", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size || lseek(fd, 0, SEEK_SET) != 0)
        return 0;
    struct media_process process = {.pid = -1,
                                    .pidfd = -1,
                                    .out = fd,
                                    .err = -1,
                                    .deadline_ns = clock_now_ns() + NS_PER_S,
                                    .stop = &go_on};
    const struct charge charge = {take, give, NULL};
    struct media_ppm frames = {.process = &process, .pixels_max = PIXELS_MAX, .charge = &charge};
    struct media_bytes frame = {0};
    int r = 0;
    for (size_t i = 0; r == 0 && i <= size; i++) {
        uint32_t width = 0, height = 0;
        r = media_ppm_read(&frames, &frame, &width, &height);
        if (r == 0)
            check_frame(&frame, fd, data, width, height);
    }
    ASSERT(r == -EPIPE || r == -EPROTO || r == -E2BIG);
    media_bytes_done(&frame);
    close(fd);
    return 0;
}
