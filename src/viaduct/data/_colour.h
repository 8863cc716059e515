/* Saturation, shared by _lerp.c (single images) and _recolour.h (crops of several records). */
#ifndef VIADUCT_COLOUR_H
#define VIADUCT_COLOUR_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* Scale the distance of each channel to the largest, as `scale_saturation_in_numpy` in colour.py does. */
static void saturate_pixels(float *restrict pixels, Py_ssize_t count, float factor) {
    for (Py_ssize_t i = 0; i < count; i++) {
        float *restrict pixel = pixels + 3 * i;
        const float red = pixel[0], green = pixel[1], blue = pixel[2];
        const float high = red > green ? red : green, low = red > green ? green : red;
        const float largest = high > blue ? high : blue, smallest = low < blue ? low : blue;
        const float span = largest - smallest;
        const float ratio = largest / (span > 0 ? span : 1.0f); /* always divided, because a branch is slower */
        const float to_full = span > 0 ? ratio : 0.0f; /* the factor that makes the saturation 1 */
        const float positive = to_full > 0 ? to_full : 0.0f;
        const float limited = positive < factor ? positive : factor;
        pixel[0] = (red - largest) * limited + largest;
        pixel[1] = (green - largest) * limited + largest;
        pixel[2] = (blue - largest) * limited + largest;
    }
}

#endif
