/* Decode only a crop of a JPEG, and resample it row by row as it is decoded.
 *
 *     decode_view(data, rows_first, rows_second, rows_fraction, columns_first, columns_second, columns_fraction, out,
 *         shrink, fast_dct, fancy_upsampling, shift, factor)          True; or False, and out is undefined
 *
 * Rows and columns are as in _lerp.c; rows must be sorted, with neighbouring pixels in each pair. shift and factor
 * normalise: an output value is (pixel + shift) * factor. Each has a float32 for each value of a row of out; if one is
 * None, nothing is normalised. Rows above the crop are only entropy-decoded, rows below are not read, and columns
 * beside the crop are not transformed. One more MCU (the smallest block of pixels that JPEG encodes) is decoded on each
 * side, because chroma is interpolated from neighbours: the pixels are those of a full decode, bit for bit.
 *
 * The caller decodes the whole image if the result is False: for inks (CMYK), for incomplete progressive images, and
 * after any warning or error of libjpeg, so that damage is judged and reported in one place, jpeg.py.
 *
 *     prepare_crops(requests, sampler, seed, epoch, check, size, shrunk_from, fancy_upsampling, mirrors_before,
 *                   colours, shift, factor, out, is_ready)
 *
 * Prepare random crops of several TFRecords in one call, without the GIL.
 *     requests: int64, four for each record: file descriptor, offset and length of its data, position in the epoch
 *     sampler: the eight fields of CropSampler in _crop.h, as float64
 *     seed, epoch: key of the random stream, as in `make_image_generator` of order.py
 *     check: verify the checksums of the data
 *     shrunk_from: crops with at least this many pixels on both sides are left to the caller; 0: none are
 *     mirrors_before: mirror before instead of after resizing
 *     colours: one of Colours in _recolour.h
 *     out: float32, size x size x 3 for each record
 *     is_ready: a byte for each record, set to 1 if out has its image, else to 0
 */
#include "_sample.h"

#include "_crop.h"
#include "_record.h"
#include "_recolour.h"

#include <setjmp.h>
#include <stdio.h>

#include <jpeglib.h>

#if !defined(LIBJPEG_TURBO_VERSION_NUMBER) || LIBJPEG_TURBO_VERSION_NUMBER < 2001000
#error "decoding regions needs libjpeg-turbo 2.1 or later"
#endif

#define MAX_PIXELS (((int64_t)1 << 29) / 3) /* jpeg.py refuses larger images with an error */
#define KEPT_ROWS 4 /* two rows are decoded at a time, and the row before them may still be needed */

typedef struct {
    struct jpeg_error_mgr base; /* first, so that a pointer to it is a pointer to this */
    jmp_buf escape;
} ErrorHandler;

/* A random crop: how it is drawn, its random state, and room for its positions. */
typedef struct {
    const CropSampler *sampler;
    Mirroring mirroring; /* how a crop is mirrored if the draw says so */
    int64_t shrunk_from; /* crops with at least this many pixels on both sides are left to the caller; 0: none are */
    RandomStream stream;
    Example example;
    int64_t *indices; /* 4 x size: first and second of the rows, then of the columns */
    float *fractions; /* 2 x size: of the rows, then of the columns */
} RandomCrop;

/* State of one image. It is not a local variable of `decode_image`, where a longjmp could change it. */
typedef struct {
    struct jpeg_decompress_struct decoder;
    ErrorHandler error_handler;
    const uint8_t *data;
    size_t length;
    Axis rows, columns;
    RandomCrop *random_crop;          /* if not NULL, rows and columns are drawn when the size of the image is known */
    int64_t top, bottom, left, right; /* first and last pixel index in each direction */
    int shrink, fast_dct, fancy_upsampling;
    const float *shift, *factor;
    float *out;
    uint8_t *decoded_rows; /* the last decoded rows, by their number modulo KEPT_ROWS */
    float *sampled_rows;   /* two rows, each resampled to the columns of out */
    size_t row_bytes;      /* bytes reserved for a decoded row */
    int64_t first_column;  /* first decoded column */
} Job;

static void abort_decoding(j_common_ptr decoder) { longjmp(((ErrorHandler *)decoder->err)->escape, 1); }

static void abort_on_warning(j_common_ptr decoder, int level) {
    if (level < 0) abort_decoding(decoder);
}

static void ignore_message(j_common_ptr decoder) {}

/* Convert boxes to pixels, as `convert_to_pixels` in geometry.py does, and return their number; -1 if they are invalid
 * or more than MAX_BOXES. */
static int read_boxes(const Example *example, int64_t height, int64_t width, Crop *objects) {
    const int64_t bytes = example->sides[0].end - example->sides[0].begin;
    for (int side = 1; side < 4; side++)
        if (example->sides[side].end - example->sides[side].begin != bytes) return -1;
    if (bytes / 4 > MAX_BOXES) return -1;
    for (int64_t i = 0; i < bytes / 4; i++) {
        float edge[4];
        for (int side = 0; side < 4; side++) {
            memcpy(&edge[side], example->sides[side].begin + 4 * i, 4);
            if (!(edge[side] >= 0 && edge[side] <= 1)) return -1;
        }
        if (edge[2] < edge[0] || edge[3] < edge[1]) return -1;
        const int64_t top = (int64_t)(edge[0] * (float)height), left = (int64_t)(edge[1] * (float)width);
        const int64_t bottom = (int64_t)(edge[2] * (float)height), right = (int64_t)(edge[3] * (float)width);
        objects[i] = (Crop){top, left, bottom - top, right - left};
    }
    return (int)(bytes / 4);
}

/* Draw rows and columns of a random crop; return 0 if the image is left to the caller. */
static int draw_view(Job *job) {
    RandomCrop *random_crop = job->random_crop;
    const int64_t height = job->decoder.image_height, width = job->decoder.image_width;
    const Py_ssize_t size = job->rows.count;
    Crop objects[MAX_BOXES];
    if (height * width > MAX_PIXELS) return 0;
    const CropSampler *sampler = random_crop->sampler;
    const int count = sampler->uses_boxes ? read_boxes(&random_crop->example, height, width, objects) : 0;
    if (count < 0) return 0;
    const Crop crop = sampler->frame
                          ? draw_crop_in_frame(sampler, height, width, &random_crop->stream)
                          : draw_covering_crop(sampler, height, width, objects, count, &random_crop->stream);
    const int64_t shrunk_from = random_crop->shrunk_from;
    if (shrunk_from && crop.height >= shrunk_from && crop.width >= shrunk_from) return 0;
    const Mirroring mirroring = draw_uniform(&random_crop->stream) < 0.5 ? random_crop->mirroring : NOT_MIRRORED;
    int64_t *indices = random_crop->indices;
    float *fractions = random_crop->fractions;
    stretch_axis(crop.y, crop.height, size, NOT_MIRRORED, indices, indices + size, fractions);
    stretch_axis(crop.x, crop.width, size, mirroring, indices + 2 * size, indices + 3 * size, fractions + size);
    job->rows = (Axis){indices, indices + size, fractions, size};
    job->columns = (Axis){indices + 2 * size, indices + 3 * size, fractions + size, size};
    find_range(&job->rows, &job->top, &job->bottom);
    find_range(&job->columns, &job->left, &job->right);
    return 1;
}

/* Read the header and start decoding; return 0 if the image is left to the caller. */
static int start_decoding(Job *job) {
    j_decompress_ptr decoder = &job->decoder;
    jpeg_mem_src(decoder, job->data, job->length);
    jpeg_read_header(decoder, TRUE);
    if (job->random_crop != NULL && !draw_view(job)) return 0;
    const J_COLOR_SPACE colours = decoder->jpeg_color_space;
    if (colours != JCS_GRAYSCALE && colours != JCS_YCbCr && colours != JCS_RGB) return 0;
    if (decoder->data_precision != 8) return 0;
    decoder->out_color_space = JCS_RGB;
    decoder->scale_num = 1;
    decoder->scale_denom = job->shrink;
    decoder->dct_method = job->fast_dct ? JDCT_IFAST : JDCT_ISLOW;
    decoder->do_fancy_upsampling = job->fancy_upsampling ? TRUE : FALSE;
    jpeg_calc_output_dimensions(decoder);
    if (job->bottom >= (int64_t)decoder->output_height || job->right >= (int64_t)decoder->output_width) return 0;
    return jpeg_start_decompress(decoder) && decoder->output_components == 3;
}

/* Return 1 if scans of a progressive image are missing: libjpeg then smooths the image, differently in each version. */
static int is_incomplete(const Job *job) {
    const struct jpeg_decompress_struct *decoder = &job->decoder;
    if (decoder->coef_bits == NULL) return 0;
    for (int component = 0; component < decoder->num_components; component++)
        for (int k = 0; k < DCTSIZE2; k++)
            if (decoder->coef_bits[component][k] != 0) return 1;
    return 0;
}

/* Restrict the decoder to the needed columns and one MCU on each side, and skip the rows above; return 0 on failure. */
static int restrict_to_view(Job *job) {
    j_decompress_ptr decoder = &job->decoder;
    const int64_t across = (int64_t)decoder->max_h_samp_factor * decoder->min_DCT_scaled_size;
    const int64_t down = (int64_t)decoder->max_v_samp_factor * decoder->min_DCT_scaled_size;
    const int64_t width = decoder->output_width;
    int64_t left = job->left - across, right = job->right + 1 + across;
    if (left < 0) left = 0;
    if (right > width) right = width;
    if (left > 0 || right < width) {
        JDIMENSION begin = (JDIMENSION)left, count = (JDIMENSION)(right - left);
        jpeg_crop_scanline(decoder, &begin, &count);
        left = begin;
        if (left > job->left || left + (int64_t)decoder->output_width <= job->right) return 0;
    }
    job->first_column = left;
    const int64_t above = job->top / down - 1;
    if (above <= 0) return 1;
    return jpeg_skip_scanlines(decoder, (JDIMENSION)(above * down)) == (JDIMENSION)(above * down);
}

static int allocate_rows(Job *job) {
    /* sample_row_quickly reads a byte and writes a float past the last pixel. Rows begin at an odd address, because
     * libjpeg-turbo's SIMD code writes aligned rows past the cache, and sampling then takes three times as long. */
    job->row_bytes = (3 * (size_t)job->decoder.output_width + 16) & ~(size_t)1;
    job->decoded_rows = malloc(KEPT_ROWS * job->row_bytes + 1);
    job->sampled_rows = malloc(2 * (3 * (size_t)job->columns.count + 4) * sizeof(float));
    return job->decoded_rows != NULL && job->sampled_rows != NULL;
}

static uint8_t *get_decoded_row(const Job *job, int64_t row) {
    return job->decoded_rows + 1 + (row % KEPT_ROWS) * job->row_bytes;
}

/* Decode up to and including this row, two rows at a time, which avoids a copy if chroma is subsampled. */
static int decode_through(Job *job, int64_t row) {
    while ((int64_t)job->decoder.output_scanline <= row) {
        const int64_t next = job->decoder.output_scanline;
        JSAMPROW pair[2] = {get_decoded_row(job, next), get_decoded_row(job, next + 1)};
        if (jpeg_read_scanlines(&job->decoder, pair, 2) < 1) return 0;
    }
    return 1;
}

/* Decode and resample all rows; return 0 on failure. */
static int resample_rows(Job *job) {
    const Py_ssize_t count = 3 * job->columns.count;
    SampledRows sampled = {{job->sampled_rows, job->sampled_rows + count + 4}, {-1, -1}};
    float *out = job->out;
    for (Py_ssize_t r = 0; r < job->rows.count; r++, out += count) {
        const int64_t pair[2] = {job->rows.first[r], job->rows.second[r]};
        int slots[2];
        if (!decode_through(job, pair[1])) return 0;
        choose_slots(&sampled, pair, slots);
        for (int i = 0; i < 2; i++) {
            if (sampled.number[slots[i]] == pair[i]) continue;
            sample_row_quickly(get_decoded_row(job, pair[i]), job->first_column, &job->columns, sampled.row[slots[i]]);
            sampled.number[slots[i]] = pair[i];
        }
        blend_rows(sampled.row[slots[0]], sampled.row[slots[1]], job->rows.fraction[r], job->shift, job->factor, out,
                   count);
    }
    return 1;
}

/* Decode and resample one image, without the GIL; return 0 if it is left to the caller. */
static int decode_image(Job *job) {
    int is_decoded = 0;
    job->decoder.err = jpeg_std_error(&job->error_handler.base);
    job->error_handler.base.error_exit = abort_decoding;
    job->error_handler.base.emit_message = abort_on_warning;
    job->error_handler.base.output_message = ignore_message;
    if (setjmp(job->error_handler.escape) == 0) {
        jpeg_create_decompress(&job->decoder);
        is_decoded = start_decoding(job) && !is_incomplete(job) && restrict_to_view(job) && allocate_rows(job) &&
                     resample_rows(job);
    } else {
        is_decoded = 0; /* an error of libjpeg jumps here */
    }
    jpeg_destroy_decompress(&job->decoder);
    free(job->decoded_rows);
    free(job->sampled_rows);
    return is_decoded;
}

/* Return 1 if rows are sorted and pairs are neighbours: the decoder yields rows in order, and few are kept. */
static int are_in_order(const Axis *rows) {
    for (Py_ssize_t r = 0; r < rows->count; r++) {
        if (rows->second[r] != rows->first[r] && rows->second[r] != rows->first[r] + 1) return 0;
        if (r > 0 && (rows->first[r] < rows->first[r - 1] || rows->second[r] < rows->second[r - 1])) return 0;
    }
    return 1;
}

/* Return what is wrong with the arguments of `decode_view`, or NULL. */
static const char *find_argument_error(const Job *job, const Py_buffer *views, int normalising) {
    const Py_ssize_t rows = job->rows.count, columns = job->columns.count;
    if (views[1].len != 8 * rows || views[2].len != 8 * rows || views[4].len != 8 * columns ||
        views[5].len != 8 * columns || views[7].len != 12 * rows * columns)
        return "the lengths of the positions and of out do not agree";
    if (normalising && (views[8].len != 12 * columns || views[9].len != 12 * columns))
        return "shift and factor must have one number for each of a row of out";
    if (job->shrink != 1 && job->shrink != 2 && job->shrink != 4 && job->shrink != 8)
        return "shrink must be 1, 2, 4 or 8";
    if (rows == 0 || columns == 0) return "there are no positions to sample at";
    return are_in_order(&job->rows) ? NULL : "the positions of rows must be in order, and pairs next to each other";
}

static PyObject *decode_view(PyObject *self, PyObject *args) {
    PyObject *objects[10];
    Py_buffer views[10];
    static const Py_ssize_t sizes[10] = {1, 8, 8, 4, 8, 8, 4, 4, 4, 4};
    static const char *names[10] = {"data",          "rows_first",     "rows_second",      "rows_fraction",
                                    "columns_first", "columns_second", "columns_fraction", "out",
                                    "shift",         "factor"};
    int shrink, fast_dct, fancy_upsampling, buffer_count = 0, is_decoded = 0;
    if (!PyArg_ParseTuple(args, "OOOOOOOOippOO", &objects[0], &objects[1], &objects[2], &objects[3], &objects[4],
                          &objects[5], &objects[6], &objects[7], &shrink, &fast_dct, &fancy_upsampling, &objects[8],
                          &objects[9]))
        return NULL;
    const int normalising = objects[8] != Py_None && objects[9] != Py_None;
    for (int i = 0; i < (normalising ? 10 : 8); i++, buffer_count++)
        if (get_buffer(objects[i], &views[i], sizes[i], i == 7 ? PyBUF_WRITABLE : 0, names[i]) < 0) goto release;
    Job *job = calloc(1, sizeof(Job));
    if (job == NULL) {
        PyErr_NoMemory();
        goto release;
    }
    job->data = views[0].buf;
    job->length = (size_t)views[0].len;
    job->rows = (Axis){views[1].buf, views[2].buf, views[3].buf, views[3].len / 4};
    job->columns = (Axis){views[4].buf, views[5].buf, views[6].buf, views[6].len / 4};
    job->shrink = shrink;
    job->fast_dct = fast_dct;
    job->fancy_upsampling = fancy_upsampling;
    job->shift = normalising ? views[8].buf : NULL;
    job->factor = normalising ? views[9].buf : NULL;
    job->out = views[7].buf;
    const char *error = find_argument_error(job, views, normalising);
    if (error == NULL) {
        find_range(&job->rows, &job->top, &job->bottom);
        find_range(&job->columns, &job->left, &job->right);
        if (job->top < 0 || job->left < 0) error = "a position lies outside of the image";
    }
    if (error != NULL) {
        PyErr_SetString(PyExc_ValueError, error);
    } else {
        Py_BEGIN_ALLOW_THREADS
        is_decoded = decode_image(job);
        Py_END_ALLOW_THREADS
    }
    free(job);
release:
    for (int i = 0; i < buffer_count; i++) PyBuffer_Release(&views[i]);
    if (PyErr_Occurred()) return NULL;
    return PyBool_FromLong(is_decoded);
}

/* Arguments of `prepare_crops`. */
typedef struct {
    const int64_t *requests; /* four numbers for each record */
    CropSampler sampler;
    uint64_t seed, epoch;
    int check, fancy_upsampling;
    Mirroring mirroring;
    Colours colours;
    Py_ssize_t count, size, shrunk_from;
    const float *shift, *factor;
    float *out;
    uint8_t *is_ready;
} Task;

/* Return 1 for a JPEG that ends with its end marker. */
static int is_plain_jpeg(Span image) {
    const int64_t length = image.end - image.begin;
    return length > 4 && memcmp(image.begin, "\xff\xd8\xff", 3) == 0 && memcmp(image.end - 2, "\xff\xd9", 2) == 0;
}

/* Prepare one record; return 1 on success. `sums` has room for a row. */
static int prepare_record(const Task *task, Py_ssize_t number, Job *job, RandomCrop *random_crop, float *sums) {
    const int64_t *request = task->requests + 4 * number;
    const int descriptor = (int)request[0];
    const size_t length = (size_t)request[2];
    int is_decoded = 0;
    uint8_t *data = read_record(descriptor, request[1], length, task->check);
    if (data == NULL) return 0;
    if (read_example(data, length, &random_crop->example) && is_plain_jpeg(random_crop->example.encoded)) {
        const Span image = random_crop->example.encoded;
        random_crop->stream = start_stream(task->seed, task->epoch, (uint64_t)request[3]);
        memset(job, 0, sizeof *job);
        job->data = image.begin;
        job->length = (size_t)(image.end - image.begin);
        job->rows.count = job->columns.count = task->size;
        job->random_crop = random_crop;
        job->shrink = job->fast_dct = 1;
        job->fancy_upsampling = task->fancy_upsampling;
        job->shift = task->colours == COLOURS_UNCHANGED ? task->shift : NULL;
        job->factor = task->factor;
        job->out = task->out + 3 * number * task->size * task->size;
        is_decoded = decode_image(job);
        if (is_decoded && task->colours != COLOURS_UNCHANGED)
            recolour(task->colours, &random_crop->stream, job->out, task->size, sums, task->shift, task->factor);
    }
    free(data);
    return is_decoded;
}

/* Prepare all records, without the GIL. If memory runs out, the records are left to the caller. */
static void prepare_records(const Task *task) {
    Job *job = malloc(sizeof *job);
    RandomCrop random_crop = {
        .sampler = &task->sampler, .mirroring = task->mirroring, .shrunk_from = task->shrunk_from};
    float *sums = malloc(3 * (size_t)task->size * sizeof *sums);
    random_crop.indices = malloc(4 * (size_t)task->size * sizeof *random_crop.indices);
    random_crop.fractions = malloc(2 * (size_t)task->size * sizeof *random_crop.fractions);
    for (Py_ssize_t i = 0; i < task->count; i++)
        task->is_ready[i] = job && sums && random_crop.indices && random_crop.fractions &&
                            prepare_record(task, i, job, &random_crop, sums);
    free(sums);
    free(random_crop.fractions);
    free(random_crop.indices);
    free(job);
}

/* Return what is wrong with the arguments of `prepare_crops`, or NULL. */
static const char *find_task_error(const Task *task, const Py_buffer *views, int normalising) {
    if (views[0].len != 32 * task->count || views[1].len != 64)
        return "requests must have four numbers for each record, sampler eight";
    if (task->colours > COLOURS_CHROMA) return "there are no such colours";
    if (task->size < 1 || views[2].len != 12 * task->count * task->size * task->size)
        return "out must have size x size x 3 for each record";
    if (normalising && (views[4].len != 12 * task->size || views[5].len != 12 * task->size))
        return "shift and factor must have one number for each of a row of out";
    for (Py_ssize_t i = 0; i < task->count; i++)
        if (task->requests[4 * i + 2] < 0 || task->requests[4 * i + 1] < 0)
            return "a record begins or ends before its file";
    return NULL;
}

static PyObject *prepare_crops(PyObject *self, PyObject *args) {
    PyObject *objects[6];
    Py_buffer views[6];
    static const Py_ssize_t sizes[6] = {8, 8, 4, 1, 4, 4};
    static const char *names[6] = {"requests", "sampler", "out", "is_ready", "shift", "factor"};
    unsigned long long seed, epoch;
    int check, fancy_upsampling, mirrors_before, colours, buffer_count = 0;
    Py_ssize_t size, shrunk_from;
    if (!PyArg_ParseTuple(args, "OOKKpnnppiOOOO", &objects[0], &objects[1], &seed, &epoch, &check, &size, &shrunk_from,
                          &fancy_upsampling, &mirrors_before, &colours, &objects[4], &objects[5], &objects[2],
                          &objects[3]))
        return NULL;
    const int normalising = objects[4] != Py_None && objects[5] != Py_None;
    for (int i = 0; i < (normalising ? 6 : 4); i++, buffer_count++) {
        const int flags = i == 2 || i == 3 ? PyBUF_WRITABLE : 0;
        if (get_buffer(objects[i], &views[i], sizes[i], flags, names[i]) < 0) goto release;
    }
    Task task = {.requests = views[0].buf};
    const double *sampler = views[1].buf;
    task.seed = seed;
    task.epoch = epoch;
    task.check = check;
    task.fancy_upsampling = fancy_upsampling;
    task.mirroring = mirrors_before ? MIRRORED_BEFORE : MIRRORED_AFTER;
    task.colours = (Colours)colours;
    task.count = views[3].len;
    task.size = size;
    task.shrunk_from = shrunk_from;
    task.shift = normalising ? views[4].buf : NULL;
    task.factor = normalising ? views[5].buf : NULL;
    task.out = views[2].buf;
    task.is_ready = views[3].buf;
    const char *error = find_task_error(&task, views, normalising);
    if (error != NULL) {
        PyErr_SetString(PyExc_ValueError, error);
        goto release;
    }
    task.sampler = (CropSampler){sampler[0], sampler[1], sampler[2], sampler[3], sampler[4], (int64_t)sampler[5],
                             (int64_t)sampler[6], (int64_t)sampler[7]};
    Py_BEGIN_ALLOW_THREADS
    prepare_records(&task);
    Py_END_ALLOW_THREADS
release:
    for (int i = 0; i < buffer_count; i++) PyBuffer_Release(&views[i]);
    if (PyErr_Occurred()) return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    {"prepare_crops", prepare_crops, METH_VARARGS, "Prepare random crops of several records of the ImageNet schema."},
#endif
    {"decode_view", decode_view, METH_VARARGS, "Decode a part of a JPEG and resample it into float32."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_region", NULL, -1, methods, NULL, NULL, NULL, NULL};

#define SPELLED(number) #number
#define SPELL(number) SPELLED(number)

PyMODINIT_FUNC PyInit__region(void) {
    make_checksum_table();
    PyObject *self = PyModule_Create(&module);
    if (self != NULL && PyModule_AddStringConstant(self, "VERSION", SPELL(LIBJPEG_TURBO_VERSION)) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    return self;
}
