/* report_media.c - what the media service has done, and does. */
#include "api/report.h"

#include "media/media.h"

#include "base/clock.h"

static void write_one(struct buf *b, const char *name, const char *type, const char *help, double value)
{
    buf_printf(b, "# HELP %s %s\n# TYPE %s %s\n%s %.15g\n", name, help, name, type, name, value);
}

void report_media(struct api *a, struct buf *ret)
{
    struct media_numbers n;
    if (!a->media) {
        buf_puts(ret, "\"media\":null");
        return;
    }
    media_numbers(a->media, &n);
    struct account_numbers memory = account_numbers(media_account(a->media));
    buf_printf(ret,
               "\"media\":{\"fetching\":%u,\"waiting\":%u,\"working\":%u,\"queued_bytes\":%llu,"
               "\"used_bytes\":%llu,\"limit_bytes\":%llu,\"requests\":%llu,\"failed\":%llu,\"left\":%llu,"
               "\"images\":%llu,\"videos\":%llu,\"frames\":%llu}",
               n.fetching, n.waiting, n.working, (unsigned long long)n.queued_bytes,
               (unsigned long long)memory.used, (unsigned long long)memory.limit, (unsigned long long)n.tasks,
               (unsigned long long)n.tasks_failed, (unsigned long long)n.tasks_left,
               (unsigned long long)n.images, (unsigned long long)n.videos, (unsigned long long)n.frames);
}

void report_media_metrics(struct api *a, struct buf *ret)
{
    struct media_numbers n;
    if (!a->media)
        return;
    media_numbers(a->media, &n);
    write_one(ret, "plateau_media_waiting", "gauge", "Requests whose images wait for a decoding thread.",
              n.waiting);
    write_one(ret, "plateau_media_working", "gauge", "Requests whose images are being decoded.", n.working);
    write_one(ret, "plateau_media_fetching", "gauge",
              "Requests whose images are being fetched from the network.", n.fetching);
    write_one(ret, "plateau_media_queued_bytes", "gauge",
              "Encoded bytes of the images in the decoding queue.", (double)n.queued_bytes);
    write_one(ret, "plateau_media_requests_total", "counter",
              "Requests with images whose decoding has ended, successfully or not.", (double)n.tasks);
    write_one(ret, "plateau_media_failed_total", "counter",
              "Requests refused because an image could not be read.", (double)n.tasks_failed);
    write_one(ret, "plateau_media_left_total", "counter",
              "Requests whose client left before their images were decoded.", (double)n.tasks_left);
    write_one(ret, "plateau_media_images_total", "counter", "Images decoded.", (double)n.images);
    write_one(ret, "plateau_media_videos_total", "counter", "Videos decoded.", (double)n.videos);
    write_one(ret, "plateau_media_frames_total", "counter", "Frames of videos decoded.", (double)n.frames);
    write_one(ret, "plateau_media_fetched_bytes_total", "counter",
              "Bytes of images and videos fetched from the network.", (double)n.bytes_fetched);
    write_one(ret, "plateau_media_addresses_refused_total", "counter",
              "Connections refused because the address is not public.", (double)n.addresses_refused);
    write_one(ret, "plateau_media_work_seconds_total", "counter",
              "Time that threads spent decoding images and videos.", (double)n.work_ns / (double)NS_PER_S);
}
