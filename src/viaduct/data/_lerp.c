/* Bilinear sampling at given places: the inner loop of every resize, with the GIL released.
 *
 *     lerp(pixels, rows_first, rows_second, rows_way, columns_first, columns_second, columns_way, out)
 *
 * pixels: uint8 H x W x 3; first, second: int64 places; way: float32 from the first to the second; out: float32
 * rows x columns x 3. The order of the arithmetic is TensorFlow's, so that results agree to the bit: along the upper
 * row, along the lower row, then between the two. Optional: geometry.py has the same in numpy.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

typedef struct {
    Py_buffer first, second, way;
    Py_ssize_t count;
} Axis;

static int take(PyObject *object, Py_buffer *view, Py_ssize_t itemsize, int flags, const char *what) {
    if (PyObject_GetBuffer(object, view, PyBUF_C_CONTIGUOUS | flags) < 0) return -1;
    if (view->itemsize != itemsize) {
        PyErr_Format(PyExc_TypeError, "%s: items of %zd bytes, expected %zd", what, view->itemsize, itemsize);
        PyBuffer_Release(view);
        return -1;
    }
    return 0;
}

static int inside(const Py_buffer *places, Py_ssize_t count, Py_ssize_t limit) {
    const int64_t *place = places->buf;
    for (Py_ssize_t i = 0; i < count; i++)
        if (place[i] < 0 || place[i] >= limit) return 0;
    return 1;
}

/* One row of the result from the two rows of the picture that it lies between. */
static void sample_row(const uint8_t *above, const uint8_t *below, float fall, const Axis *columns, float *out) {
    const int64_t *left = columns->first.buf, *right = columns->second.buf;
    const float *across = columns->way.buf;
    for (Py_ssize_t c = 0; c < columns->count; c++, out += 3) {
        const uint8_t *a = above + 3 * left[c], *b = above + 3 * right[c];
        const uint8_t *d = below + 3 * left[c], *e = below + 3 * right[c];
        for (int k = 0; k < 3; k++) {
            const float top = (float)a[k] + ((float)b[k] - (float)a[k]) * across[c];
            const float bottom = (float)d[k] + ((float)e[k] - (float)d[k]) * across[c];
            out[k] = top + (bottom - top) * fall;
        }
    }
}

#ifdef __SSE2__
/* Red, green, blue and the byte after them as four floats: one conversion instead of three. */
static inline __m128 colour_at(const uint8_t *pixel) {
    int word;
    memcpy(&word, pixel, 4);
    const __m128i zero = _mm_setzero_si128();
    const __m128i shorts = _mm_unpacklo_epi8(_mm_cvtsi32_si128(word), zero);
    return _mm_cvtepi32_ps(_mm_unpacklo_epi16(shorts, zero));
}

static inline __m128 between(__m128 one, __m128 other, __m128 way) {
    return _mm_add_ps(one, _mm_mul_ps(_mm_sub_ps(other, one), way));
}

/* The same, four channels at a time; reads one byte past a pixel and writes one float past a colour. */
static void sample_row_quickly(const uint8_t *above, const uint8_t *below, float fall, const Axis *columns, float *out) {
    const int64_t *left = columns->first.buf, *right = columns->second.buf;
    const float *across = columns->way.buf;
    const __m128 down = _mm_set1_ps(fall);
    for (Py_ssize_t c = 0; c < columns->count; c++, out += 3) {
        const __m128 way = _mm_set1_ps(across[c]);
        const __m128 top = between(colour_at(above + 3 * left[c]), colour_at(above + 3 * right[c]), way);
        const __m128 bottom = between(colour_at(below + 3 * left[c]), colour_at(below + 3 * right[c]), way);
        _mm_storeu_ps(out, between(top, bottom, down));
    }
}
#else
#define sample_row_quickly sample_row
#endif

static void sample(const uint8_t *pixels, Py_ssize_t height, Py_ssize_t width, const Axis *rows, const Axis *columns,
                   float *out) {
    const int64_t *first = rows->first.buf, *second = rows->second.buf;
    const float *way = rows->way.buf;
    for (Py_ssize_t r = 0; r < rows->count; r++, out += 3 * columns->count) {
        const uint8_t *above = pixels + first[r] * 3 * width, *below = pixels + second[r] * 3 * width;
        /* The last row on either side has nothing behind it that may be touched. */
        const int last = first[r] == height - 1 || second[r] == height - 1 || r == rows->count - 1;
        (last ? sample_row : sample_row_quickly)(above, below, way[r], columns, out);
    }
}

static PyObject *lerp(PyObject *self, PyObject *args) {
    PyObject *objects[8];
    Py_buffer views[8];
    static const Py_ssize_t sizes[8] = {1, 8, 8, 4, 8, 8, 4, 4};
    static const char *names[8] = {"pixels",        "rows_first",     "rows_second", "rows_way",
                                   "columns_first", "columns_second", "columns_way", "out"};
    if (!PyArg_ParseTuple(args, "OOOOOOOO", &objects[0], &objects[1], &objects[2], &objects[3], &objects[4],
                          &objects[5], &objects[6], &objects[7]))
        return NULL;
    int taken = 0;
    for (; taken < 8; taken++)
        if (take(objects[taken], &views[taken], sizes[taken], taken == 7 ? PyBUF_WRITABLE : 0, names[taken]) < 0)
            goto done;
    Axis rows = {views[1], views[2], views[3], views[3].len / 4};
    Axis columns = {views[4], views[5], views[6], views[6].len / 4};
    if (views[0].ndim != 3 || views[0].shape[2] != 3) {
        PyErr_SetString(PyExc_ValueError, "pixels must be height x width x 3");
        goto done;
    }
    const Py_ssize_t height = views[0].shape[0], width = views[0].shape[1];
    if (views[1].len != 8 * rows.count || views[2].len != 8 * rows.count || views[4].len != 8 * columns.count ||
        views[5].len != 8 * columns.count || views[7].len != 12 * rows.count * columns.count) {
        PyErr_SetString(PyExc_ValueError, "the lengths of the places and of out do not agree");
        goto done;
    }
    if (!inside(&views[1], rows.count, height) || !inside(&views[2], rows.count, height) ||
        !inside(&views[4], columns.count, width) || !inside(&views[5], columns.count, width)) {
        PyErr_SetString(PyExc_IndexError, "a place lies outside of the picture");
        goto done;
    }
    Py_BEGIN_ALLOW_THREADS
    sample(views[0].buf, height, width, &rows, &columns, views[7].buf);
    Py_END_ALLOW_THREADS
done:
    for (int i = 0; i < taken; i++) PyBuffer_Release(&views[i]);
    if (PyErr_Occurred()) return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"lerp", lerp, METH_VARARGS, "Bilinear sampling of uint8 pixels at given places into float32."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_lerp", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__lerp(void) { return PyModule_Create(&module); }
