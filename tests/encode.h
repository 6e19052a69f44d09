/* encode.h - generated images for tests and benchmarks: some pixels, and their JPEG, WebP, PNG or GIF. Stops
 * the program when an encoder fails. The caller frees results with free(). */
#ifndef PLATEAU_TESTS_ENCODE_H
#define PLATEAU_TESTS_ENCODE_H

#include "base/check.h"
#include "base/slice.h"

#include <stdio.h>
#include <stdlib.h>

#include <gif_lib.h>
#include <jpeglib.h>
#include <png.h>
#include <webp/encode.h>

struct encode_pixels {
    uint8_t *rgb; /* [height][width][3] */
    uint32_t width, height;
};

/* Smooth, sharp and noisy parts, so that encoders use all they have; a photograph's share of each. */
static inline struct encode_pixels encode_scene(uint32_t width, uint32_t height)
{
    struct encode_pixels p = {malloc((size_t)width * height * 3), width, height};
    uint32_t seed = 1;
    ASSERT(p.rgb);
    for (uint32_t y = 0; y < height; y++)
        for (uint32_t x = 0; x < width; x++)
            for (uint32_t c = 0; c < 3; c++) {
                seed = seed * 1664525 + 1013904223;
                uint32_t kind = (x / 64 + y / 64) % 3, noise = seed >> 24;
                uint32_t v = kind == 0   ? (x * (c + 1) + y) / 4
                             : kind == 1 ? (x + y * 2) / 8 + noise / 8
                                         : (x / 7 % 2) * 100 + 50 * c + noise / 32;
                p.rgb[((size_t)y * width + x) * 3 + c] = (uint8_t)v;
            }
    return p;
}

struct encode_jpeg_opts {
    int sampling[2]; /* sampling of brightness, across and down: {2, 2} is 4:2:0 */
    bool progressive;
    bool ycck; /* the pixels are C, M, Y, K, four bytes each, and stored as YCCK */
};

static inline struct slice encode_jpeg(const struct encode_pixels *p, const struct encode_jpeg_opts *o)
{
    struct jpeg_compress_struct c;
    struct jpeg_error_mgr errors;
    unsigned char *to = NULL;
    unsigned long len = 0;
    c.err = jpeg_std_error(&errors);
    jpeg_create_compress(&c);
    jpeg_mem_dest(&c, &to, &len);
    c.image_width = p->width;
    c.image_height = p->height;
    c.input_components = o->ycck ? 4 : 3;
    c.in_color_space = o->ycck ? JCS_CMYK : JCS_RGB;
    jpeg_set_defaults(&c);
    if (o->ycck)
        jpeg_set_colorspace(&c, JCS_YCCK);
    jpeg_set_quality(&c, 90, TRUE);
    c.comp_info[0].h_samp_factor = o->sampling[0];
    c.comp_info[0].v_samp_factor = o->sampling[1];
    if (o->progressive)
        jpeg_simple_progression(&c);
    jpeg_start_compress(&c, TRUE);
    while (c.next_scanline < p->height) {
        JSAMPROW row = p->rgb + (size_t)c.next_scanline * p->width * (size_t)c.input_components;
        jpeg_write_scanlines(&c, &row, 1);
    }
    jpeg_finish_compress(&c);
    jpeg_destroy_compress(&c);
    return (struct slice){(char *)to, len};
}

static inline struct slice encode_webp(const struct encode_pixels *from, bool lossless)
{
    WebPConfig config;
    WebPPicture p;
    WebPMemoryWriter w;
    ASSERT(WebPConfigInit(&config) && WebPPictureInit(&p));
    WebPMemoryWriterInit(&w);
    config.lossless = lossless;
    config.method = lossless ? 1 : 2;
    config.quality = lossless ? 20 : 80;
    p.use_argb = lossless;
    p.width = (int)from->width;
    p.height = (int)from->height;
    p.writer = WebPMemoryWrite;
    p.custom_ptr = &w;
    ASSERT(WebPPictureImportRGB(&p, from->rgb, (int)from->width * 3) && WebPEncode(&config, &p));
    WebPPictureFree(&p);
    return (struct slice){(char *)w.mem, w.size};
}

static inline struct slice encode_png(const struct encode_pixels *from)
{
    png_image image = {
        .version = PNG_IMAGE_VERSION, .width = from->width, .height = from->height, .format = PNG_FORMAT_RGB};
    png_alloc_size_t len = PNG_IMAGE_PNG_SIZE_MAX(image);
    char *to = malloc(len);
    ASSERT(to && png_image_write_to_memory(&image, to, &len, 0, from->rgb, 0, NULL));
    return (struct slice){to, len};
}

static inline int encode_gif_put(GifFileType *gif, const GifByteType *bytes, int len)
{
    return (int)fwrite(bytes, 1, (size_t)len, gif->UserData);
}

/* In 216 colours. */
static inline struct slice encode_gif(const struct encode_pixels *from)
{
    char *to = NULL;
    size_t len = 0;
    int error, width = (int)from->width, height = (int)from->height;
    GifColorType colours[256] = {{0, 0, 0}};
    for (int i = 0; i < 216; i++)
        colours[i] = (GifColorType){(uint8_t)(i / 36 * 51), (uint8_t)(i / 6 % 6 * 51), (uint8_t)(i % 6 * 51)};
    ColorMapObject *map = GifMakeMapObject(256, colours);
    uint8_t *line = malloc(from->width);
    FILE *f = open_memstream(&to, &len);
    GifFileType *gif = EGifOpen(f, encode_gif_put, &error);
    ASSERT(map && line && f && gif && EGifPutScreenDesc(gif, width, height, 8, 0, map) == GIF_OK &&
           EGifPutImageDesc(gif, 0, 0, width, height, false, NULL) == GIF_OK);
    for (int y = 0; y < height; y++) {
        const uint8_t *p = from->rgb + (size_t)y * from->width * 3;
        for (uint32_t x = 0; x < from->width; x++, p += 3)
            line[x] = (uint8_t)((p[0] + 25) / 51 * 36 + (p[1] + 25) / 51 * 6 + (p[2] + 25) / 51);
        ASSERT(EGifPutLine(gif, line, width) == GIF_OK);
    }
    ASSERT(EGifCloseFile(gif, &error) == GIF_OK && fclose(f) == 0);
    GifFreeMapObject(map);
    free(line);
    return (struct slice){to, len};
}

#endif
