/* Random changes of colour in training: the same draws and results as `SaturationChange` and `ChromaChange` in
 * colour.py. Tests compare them.
 *
 * The order of the arithmetic is numpy's: a mean over rows adds row after row, one over columns column after column.
 */
#ifndef VIADUCT_RECOLOUR_H
#define VIADUCT_RECOLOUR_H

#include "_colour.h"
#include "_crop.h"

typedef enum { COLOURS_UNCHANGED, COLOURS_SATURATION, COLOURS_CHROMA } Colours; /* COLOUR_CODES in crops.py */

/* Draw as `Generator.uniform` of NumPy does. */
static double draw_between(RandomStream *stream, double low, double high) {
    return low + (high - low) * draw_uniform(stream);
}

/* Add `brightness` to all values, in place, and compute the mean of each channel. `sums` has room for a row. */
static void brighten(float *pixels, Py_ssize_t size, float brightness, float *restrict sums, float mean[3]) {
    for (Py_ssize_t row = 0; row < size; row++) {
        float *restrict line = pixels + 3 * row * size;
        for (Py_ssize_t i = 0; i < 3 * size; i++) {
            line[i] += brightness;
            sums[i] = row ? sums[i] + line[i] : line[i];
        }
    }
    for (int k = 0; k < 3; k++) {
        float sum = sums[k] / (float)size;
        for (Py_ssize_t column = 1; column < size; column++) sum += sums[3 * column + k] / (float)size;
        mean[k] = sum / (float)size;
    }
}

static inline float clip_value(float value) {
    const float above = value > 0 ? value : 0.0f;
    return above < 255 ? above : 255.0f;
}

/* Clip a row to 0..255; if `shift` is not NULL, normalise it with `shift` and `factor`. */
static void finish_row(float *restrict line, Py_ssize_t count, const float *restrict shift,
                       const float *restrict factor) {
    if (shift == NULL)
        for (Py_ssize_t i = 0; i < count; i++) line[i] = clip_value(line[i]);
    else
        for (Py_ssize_t i = 0; i < count; i++) line[i] = (clip_value(line[i]) + shift[i]) * factor[i];
}

/* Multiply all values of a row by `scale`, then add the `offset` of their channel. */
static void scale_and_shift_row(float *restrict line, Py_ssize_t size, float scale, const float offset[3]) {
    for (Py_ssize_t column = 0; column < size; column++)
        for (int k = 0; k < 3; k++) line[3 * column + k] = line[3 * column + k] * scale + offset[k];
}

/* Draw a change of colours, apply it to size x size pixels, and normalise them if `shift` is not NULL. */
static void recolour(Colours colours, RandomStream *stream, float *pixels, Py_ssize_t size, float *sums,
                     const float *shift, const float *factor) {
    float scale = 1, saturation = 0, offset[3];
    if (colours == COLOURS_SATURATION) {
        const double brightness = draw_between(stream, -0.4, 0.4), contrast = draw_between(stream, 0.4, 1.6);
        saturation = (float)draw_between(stream, 0.4, 1.6);
        scale = (float)contrast;
        brighten(pixels, size, (float)brightness, sums, offset);
        for (int k = 0; k < 3; k++) offset[k] *= (float)(1 - contrast); /* it was the mean of the channel */
    } else {
        const double brightness = draw_between(stream, -32.0 / 255, 32.0 / 255);
        const double blue = draw_between(stream, -0.1, 0.1), red = draw_between(stream, -0.1, 0.1);
        const double chroma[3] = {1.402 * red, -0.344136 * blue - 0.714136 * red, 1.772 * blue}; /* of each channel */
        for (int k = 0; k < 3; k++) offset[k] = ((float)chroma[k] + (float)brightness) * 255.0f;
    }
    for (Py_ssize_t row = 0; row < size; row++) {
        float *line = pixels + 3 * row * size;
        scale_and_shift_row(line, size, scale, offset);
        if (colours == COLOURS_SATURATION) saturate_pixels(line, size, saturation);
        finish_row(line, 3 * size, shift, factor);
    }
}

#endif
