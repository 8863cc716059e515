/* Random changes of colour in training: the same draws and results as `draw_saturation` and `vary_saturation`, and
 * `draw_chroma` and `vary_chroma` in colour.py. Tests compare them.
 *
 * The order of the arithmetic is numpy's: a mean over rows adds row after row, one over columns column after column.
 */
#ifndef VIADUCT_RECOLOUR_H
#define VIADUCT_RECOLOUR_H

#include "_colour.h"
#include "_crop.h"

typedef enum { COLOURS_KEPT, COLOURS_SATURATED, COLOURS_OF_CHROMA } Colours; /* crops.COLOURS */

/* `Generator.uniform`. */
static double draw_between(Chance *chance, double low, double high) {
    return low + (high - low) * draw_uniform(chance);
}

/* Add to all values, in place, and compute the mean of each channel. `sums` has room for a row. */
static void brighten(float *pixels, Py_ssize_t size, float more, float *restrict sums, float mean[3]) {
    for (Py_ssize_t row = 0; row < size; row++) {
        float *restrict line = pixels + 3 * row * size;
        for (Py_ssize_t i = 0; i < 3 * size; i++) {
            line[i] += more;
            sums[i] = row ? sums[i] + line[i] : line[i];
        }
    }
    for (int k = 0; k < 3; k++) {
        float sum = sums[k] / (float)size;
        for (Py_ssize_t column = 1; column < size; column++) sum += sums[3 * column + k] / (float)size;
        mean[k] = sum / (float)size;
    }
}

static inline float clipped(float value) {
    const float above = value > 0 ? value : 0.0f;
    return above < 255 ? above : 255.0f;
}

/* Clip a row to 0..255; if `shift` is not NULL, normalise it with `shift` and `factor`. */
static void finish_row(float *restrict line, Py_ssize_t count, const float *restrict shift,
                       const float *restrict factor) {
    if (shift == NULL)
        for (Py_ssize_t i = 0; i < count; i++) line[i] = clipped(line[i]);
    else
        for (Py_ssize_t i = 0; i < count; i++) line[i] = (clipped(line[i]) + shift[i]) * factor[i];
}

/* Multiply all values of a row, then add to each channel. */
static void move_row(float *restrict line, Py_ssize_t size, float times, const float more[3]) {
    for (Py_ssize_t column = 0; column < size; column++)
        for (int k = 0; k < 3; k++) line[3 * column + k] = line[3 * column + k] * times + more[k];
}

static void recolour(Colours colours, Chance *chance, float *pixels, Py_ssize_t size, float *sums, const float *shift,
                     const float *factor) {
    float times = 1, share = 0, more[3];
    if (colours == COLOURS_SATURATED) {
        const double brightness = draw_between(chance, -0.4, 0.4), contrast = draw_between(chance, 0.4, 1.6);
        share = (float)draw_between(chance, 0.4, 1.6);
        times = (float)contrast;
        brighten(pixels, size, (float)brightness, sums, more);
        for (int k = 0; k < 3; k++) more[k] *= (float)(1 - contrast);
    } else {
        const double brightness = draw_between(chance, -32.0 / 255, 32.0 / 255);
        const double blue = draw_between(chance, -0.1, 0.1), red = draw_between(chance, -0.1, 0.1);
        const double moved[3] = {1.402 * red, -0.344136 * blue - 0.714136 * red, 1.772 * blue};
        for (int k = 0; k < 3; k++) more[k] = ((float)moved[k] + (float)brightness) * 255.0f;
    }
    for (Py_ssize_t row = 0; row < size; row++) {
        float *line = pixels + 3 * row * size;
        move_row(line, size, times, more);
        if (colours == COLOURS_SATURATED) saturate_pixels(line, size, share);
        finish_row(line, 3 * size, shift, factor);
    }
}

#endif
