/* Bilinear sampling along a row, shared by _lerp.c (pixels in memory) and _region.c (pixels as they are decoded).
 *
 * The order of the arithmetic is TensorFlow's, so that results are equal bit for bit: along the upper row, along the
 * lower row, then between the two. A row that is needed for two rows of the result is sampled once.
 */
#ifndef VIADUCT_SAMPLE_H
#define VIADUCT_SAMPLE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

/* Sampling positions along one direction, each between two pixels; `fraction` (0..1) is the distance from the first. */
typedef struct {
    const int64_t *first, *second;
    const float *fraction;
    Py_ssize_t count;
} Axis;

/* Get the contiguous buffer of an object, with items of `itemsize` bytes; return -1 and set an error about `what`, the
 * name of the argument, if it has none. */
static int get_buffer(PyObject *object, Py_buffer *view, Py_ssize_t itemsize, int flags, const char *what) {
    if (PyObject_GetBuffer(object, view, PyBUF_C_CONTIGUOUS | flags) < 0) return -1;
    if (view->itemsize != itemsize) {
        PyErr_Format(PyExc_TypeError, "%s: items of %zd bytes, expected %zd", what, view->itemsize, itemsize);
        PyBuffer_Release(view);
        return -1;
    }
    return 0;
}

/* Set the smallest and the largest pixel index of an axis; 0 and -1 for an empty axis. */
static void find_range(const Axis *axis, int64_t *low, int64_t *high) {
    *low = axis->count ? axis->first[0] : 0;
    *high = axis->count ? axis->first[0] : -1;
    for (Py_ssize_t i = 0; i < axis->count; i++) {
        const int64_t a = axis->first[i], b = axis->second[i];
        if (a < *low) *low = a;
        if (b < *low) *low = b;
        if (a > *high) *high = a;
        if (b > *high) *high = b;
    }
}

/* Sample a row of the image at all positions: three floats for each. `pixels` begins at pixel `first_column` of it. */
static inline void sample_row(const uint8_t *pixels, int64_t first_column, const Axis *columns, float *out) {
    for (Py_ssize_t c = 0; c < columns->count; c++, out += 3) {
        const uint8_t *a = pixels + 3 * (columns->first[c] - first_column);
        const uint8_t *b = pixels + 3 * (columns->second[c] - first_column);
        for (int k = 0; k < 3; k++) out[k] = (float)a[k] + ((float)b[k] - (float)a[k]) * columns->fraction[c];
    }
}

#ifdef __SSE2__
/* Return red, green, blue and the byte after them as four floats: one conversion instead of three. */
static inline __m128 load_pixel(const uint8_t *pixel) {
    int word;
    memcpy(&word, pixel, 4);
    const __m128i zero = _mm_setzero_si128();
    const __m128i shorts = _mm_unpacklo_epi8(_mm_cvtsi32_si128(word), zero);
    return _mm_cvtepi32_ps(_mm_unpacklo_epi16(shorts, zero));
}

/* Compute the same as `sample_row`, with four channels at a time: it reads one byte and writes one float past each
 * pixel. */
static inline void sample_row_quickly(const uint8_t *pixels, int64_t first_column, const Axis *columns, float *out) {
    for (Py_ssize_t c = 0; c < columns->count; c++, out += 3) {
        const __m128 a = load_pixel(pixels + 3 * (columns->first[c] - first_column));
        const __m128 b = load_pixel(pixels + 3 * (columns->second[c] - first_column));
        const __m128 fraction = _mm_set1_ps(columns->fraction[c]);
        _mm_storeu_ps(out, _mm_add_ps(a, _mm_mul_ps(_mm_sub_ps(b, a), fraction)));
    }
}
#else
#define sample_row_quickly sample_row
#endif

/* The two rows of the image that were sampled last, and their row numbers; -1: none yet. */
typedef struct {
    float *row[2];
    int64_t number[2];
} SampledRows;

/* Choose a slot for each row of a pair; a row that is sampled already keeps its slot. */
static inline void choose_slots(const SampledRows *sampled, const int64_t pair[2], int slots[2]) {
    /* 1 if slot 0 has the second row of the pair: the first row then goes to slot 1, otherwise to slot 0. */
    const int keeps_second = sampled->number[0] == pair[1];
    slots[0] = sampled->number[0] == pair[0] ? 0 : sampled->number[1] == pair[0] ? 1 : keeps_second;
    slots[1] = pair[1] == pair[0] ? slots[0] : 1 - slots[0];
}

/* Interpolate between two sampled rows; if `shift` is not NULL, normalise with `shift` and `factor`. */
static inline void blend_rows(const float *restrict top, const float *restrict bottom, float fraction,
                              const float *restrict shift, const float *restrict factor, float *restrict out,
                              Py_ssize_t count) {
    if (shift == NULL)
        for (Py_ssize_t i = 0; i < count; i++) out[i] = top[i] + (bottom[i] - top[i]) * fraction;
    else
        for (Py_ssize_t i = 0; i < count; i++)
            out[i] = (top[i] + (bottom[i] - top[i]) * fraction + shift[i]) * factor[i];
}

#endif
