/* Inner loops over pixels, without the GIL. If they are not built, geometry.py and colour.py compute the same in numpy.
 *
 *     lerp(pixels, rows_first, rows_second, rows_fraction, columns_first, columns_second, columns_fraction, out)
 *         bilinear sampling; rows and columns are as in `Axis` of geometry.py. pixels: uint8 H x W x 3; first and
 *         second: int64 indices of two neighbouring pixels; fraction: float32, share of the distance from the first to
 *         the second; out: float32 rows x columns x 3
 *     saturate(image, factor)
 *         scale the saturation of a float32 H x W x 3 image, in place
 */
#include "_colour.h"
#include "_sample.h"

static void resample(const uint8_t *pixels, int64_t height, int64_t width, const Axis *rows, const Axis *columns,
                   SampledRows *sampled, float *out) {
    for (Py_ssize_t r = 0; r < rows->count; r++, out += 3 * columns->count) {
        const int64_t pair[2] = {rows->first[r], rows->second[r]};
        int slots[2];
        choose_slots(sampled, pair, slots);
        for (int i = 0; i < 2; i++) {
            if (sampled->number[slots[i]] == pair[i]) continue;
            const uint8_t *line = pixels + pair[i] * 3 * width;
            /* The quick function reads one byte beyond a row, which does not belong to the image after the last row. */
            const int last = pair[i] == height - 1;
            (last ? sample_row : sample_row_quickly)(line, 0, columns, sampled->row[slots[i]]);
            sampled->number[slots[i]] = pair[i];
        }
        blend_rows(sampled->row[slots[0]], sampled->row[slots[1]], rows->fraction[r], NULL, NULL, out,
                   3 * columns->count);
    }
}

static PyObject *lerp(PyObject *self, PyObject *args) {
    PyObject *objects[8];
    Py_buffer views[8];
    static const Py_ssize_t sizes[8] = {1, 8, 8, 4, 8, 8, 4, 4};
    static const char *names[8] = {"pixels",        "rows_first",     "rows_second",      "rows_fraction",
                                   "columns_first", "columns_second", "columns_fraction", "out"};
    if (!PyArg_ParseTuple(args, "OOOOOOOO", &objects[0], &objects[1], &objects[2], &objects[3], &objects[4],
                          &objects[5], &objects[6], &objects[7]))
        return NULL;
    int buffer_count = 0;
    for (int i = 0; i < 8; i++, buffer_count++)
        if (get_buffer(objects[i], &views[i], sizes[i], i == 7 ? PyBUF_WRITABLE : 0, names[i]) < 0) goto release;
    const Axis rows = {views[1].buf, views[2].buf, views[3].buf, views[3].len / 4};
    const Axis columns = {views[4].buf, views[5].buf, views[6].buf, views[6].len / 4};
    if (views[0].ndim != 3 || views[0].shape[2] != 3) {
        PyErr_SetString(PyExc_ValueError, "pixels must be height x width x 3");
        goto release;
    }
    if (views[1].len != 8 * rows.count || views[2].len != 8 * rows.count || views[4].len != 8 * columns.count ||
        views[5].len != 8 * columns.count || views[7].len != 12 * rows.count * columns.count) {
        PyErr_SetString(PyExc_ValueError, "the lengths of the positions and of out do not agree");
        goto release;
    }
    const int64_t height = views[0].shape[0], width = views[0].shape[1];
    int64_t top, bottom, left, right;
    find_range(&rows, &top, &bottom);
    find_range(&columns, &left, &right);
    if (top < 0 || bottom >= height || left < 0 || right >= width) {
        PyErr_SetString(PyExc_IndexError, "a position lies outside of the image");
        goto release;
    }
    /* One float more than a row: sample_row_quickly writes four floats for the last pixel. */
    const size_t row_length = 3 * (size_t)columns.count + 1;
    float *scratch = malloc(2 * row_length * sizeof(float));
    if (scratch == NULL) {
        PyErr_NoMemory();
        goto release;
    }
    SampledRows sampled = {{scratch, scratch + row_length}, {-1, -1}};
    Py_BEGIN_ALLOW_THREADS
    resample(views[0].buf, height, width, &rows, &columns, &sampled, views[7].buf);
    Py_END_ALLOW_THREADS
    free(scratch);
release:
    for (int i = 0; i < buffer_count; i++) PyBuffer_Release(&views[i]);
    if (PyErr_Occurred()) return NULL;
    Py_RETURN_NONE;
}

static PyObject *saturate(PyObject *self, PyObject *args) {
    PyObject *object;
    Py_buffer image;
    float factor;
    if (!PyArg_ParseTuple(args, "Of", &object, &factor)) return NULL;
    if (get_buffer(object, &image, 4, PyBUF_WRITABLE, "image") < 0) return NULL;
    if (image.len % 12 != 0) {
        PyErr_SetString(PyExc_ValueError, "image must be height x width x 3");
    } else {
        Py_BEGIN_ALLOW_THREADS
        saturate_pixels(image.buf, image.len / 12, factor);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&image);
    if (PyErr_Occurred()) return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"saturate", saturate, METH_VARARGS, "Scale the saturation of a float32 image, in place."},
    {"lerp", lerp, METH_VARARGS, "Bilinear sampling of uint8 pixels at given positions into float32."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_lerp", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__lerp(void) { return PyModule_Create(&module); }
