/* exif.h - the orientation of an image. Pure. */
#ifndef PLATEAU_VISION_EXIF_H
#define PLATEAU_VISION_EXIF_H

#include "base/slice.h"

/* The orientation (tag 0x0112) of the first directory of EXIF data, with or without "Exif\0\0" before it: 1
 * to 8. 1 where it is not given, out of range, or the data are broken. Reads at most 65,535 entries. */
unsigned exif_orientation(struct slice exif);

#endif
