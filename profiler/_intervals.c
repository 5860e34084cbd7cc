/* Sets of time as sorted, disjoint intervals: what analyse/intervals.py does, in one pass over what is sorted.

Arrays come as buffers of 64-bit integers; results are written into those that Python made. Intervals are pairs of
(begin, end), one after another, contiguous. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef int64_t ns_t;
#define NOT_MEASURED INT64_MIN
#define NEAR 16  /* intervals that are walked over before the place of a moment is searched for */
#define LESSER(a, b) ((a) < (b) ? (a) : (b))
#define LARGER(a, b) ((a) > (b) ? (a) : (b))

/* One array: contiguous pairs, or numbers at a fixed distance. */
typedef struct {
    Py_buffer view;
    char *at;
    Py_ssize_t step, count;
} Array;

#define NUMBER(array, i) (*(const ns_t *)((array).at + (i) * (array).step))
#define BEGIN(array, i) (((const ns_t *)(array).at)[2 * (i)])
#define END(array, i) (((const ns_t *)(array).at)[2 * (i) + 1])

static int opened(PyObject *from, Array *to, int dimensions, int flags)
{
    to->view.obj = NULL;
    if (PyObject_GetBuffer(from, &to->view, PyBUF_STRIDES | PyBUF_FORMAT | flags) < 0)
        return -1;
    const char *last = to->view.format + strlen(to->view.format) - 1;
    if (to->view.ndim != dimensions || to->view.itemsize != 8 || (*last != 'l' && *last != 'q') ||
        (dimensions == 2 && (to->view.shape[1] != 2 || !PyBuffer_IsContiguous(&to->view, 'C')))) {
        PyErr_SetString(PyExc_ValueError, "not the integers of an interval set");
        return -1;
    }
    to->at = to->view.buf;
    to->step = to->view.strides[0];
    to->count = to->view.shape[0];
    return 0;
}

static void closed(Array *arrays, int count)
{
    for (int i = 0; i < count; i++)
        if (arrays[i].view.obj != NULL)
            PyBuffer_Release(&arrays[i].view);
}

/* Opens what a function was given: `kinds` has 2 for pairs, 1 for numbers, of which the last is written to. */
static int all_opened(PyObject *const *given, Py_ssize_t count, Array *arrays, const int *kinds, int wanted)
{
    for (int i = 0; i < wanted; i++)
        arrays[i].view.obj = NULL;
    if (count != wanted) {
        PyErr_Format(PyExc_TypeError, "%d arrays are needed", wanted);
        return -1;
    }
    for (int i = 0; i < wanted; i++)
        if (opened(given[i], &arrays[i], kinds[i], i + 1 == wanted ? PyBUF_WRITABLE : 0) < 0)
            return -1;
    return 0;
}

static PyObject *too_short(Array *arrays, int count)
{
    closed(arrays, count);
    PyErr_SetString(PyExc_ValueError, "no room for the result");
    return NULL;
}

/* Puts an interval behind those that are there already, or together with the last of them. */
static Py_ssize_t joined(ns_t *to, Py_ssize_t made, ns_t begin, ns_t end)
{
    if (made > 0 && begin <= to[2 * made - 1]) {
        to[2 * made - 1] = LARGER(to[2 * made - 1], end);
        return made;
    }
    to[2 * made] = begin;
    to[2 * made + 1] = end;
    return made + 1;
}

/* united(begin, end, into): how many; -1 where they are not in the order of their begins. */
static PyObject *united(PyObject *self, PyObject *const *given, Py_ssize_t count)
{
    Array a[3];
    (void)self;
    if (all_opened(given, count, a, (const int[]){1, 1, 2}, 3) < 0) {
        closed(a, 3);
        return NULL;
    }
    if (a[1].count != a[0].count || a[2].count < a[0].count)
        return too_short(a, 3);
    ns_t *to = (ns_t *)a[2].at, last = NOT_MEASURED;
    Py_ssize_t made = 0;
    for (Py_ssize_t i = 0; i < a[0].count; i++) {
        ns_t begin = NUMBER(a[0], i), end = NUMBER(a[1], i);
        if (end <= begin || begin == NOT_MEASURED)
            continue;
        if (begin < last) {
            made = -1;
            break;
        }
        last = begin;
        made = joined(to, made, begin, end);
    }
    closed(a, 3);
    return PyLong_FromSsize_t(made);
}

/* Begins what takes two sets and makes one of them that has no more than their sum of intervals. */
#define TWO_SETS                                                              \
    Array a[3];                                                               \
    (void)self;                                                               \
    if (all_opened(given, count, a, (const int[]){2, 2, 2}, 3) < 0) {         \
        closed(a, 3);                                                         \
        return NULL;                                                          \
    }                                                                         \
    if (a[2].count < a[0].count + a[1].count)                                 \
        return too_short(a, 3);                                               \
    ns_t *to = (ns_t *)a[2].at;                                               \
    Py_ssize_t made = 0, i = 0, j = 0;

static PyObject *merged(PyObject *self, PyObject *const *given, Py_ssize_t count)
{
    TWO_SETS
    while (i < a[0].count || j < a[1].count) {
        if (j == a[1].count || (i < a[0].count && BEGIN(a[0], i) <= BEGIN(a[1], j))) {
            made = joined(to, made, BEGIN(a[0], i), END(a[0], i));
            i++;
        } else {
            made = joined(to, made, BEGIN(a[1], j), END(a[1], j));
            j++;
        }
    }
    closed(a, 3);
    return PyLong_FromSsize_t(made);
}

static PyObject *intersected(PyObject *self, PyObject *const *given, Py_ssize_t count)
{
    TWO_SETS
    while (i < a[0].count && j < a[1].count) {
        ns_t begin = LARGER(BEGIN(a[0], i), BEGIN(a[1], j)), end = LESSER(END(a[0], i), END(a[1], j));
        if (begin < end) {
            to[2 * made] = begin;
            to[2 * made + 1] = end;
            made++;
        }
        if (END(a[0], i) < END(a[1], j))
            i++;
        else
            j++;
    }
    closed(a, 3);
    return PyLong_FromSsize_t(made);
}

static PyObject *subtracted(PyObject *self, PyObject *const *given, Py_ssize_t count)
{
    TWO_SETS
    for (; i < a[0].count; i++) {
        ns_t begin = BEGIN(a[0], i), end = END(a[0], i);
        while (j < a[1].count && END(a[1], j) <= begin)
            j++;
        for (Py_ssize_t k = j; begin < end; k++) {
            ns_t until = k < a[1].count ? LESSER(end, BEGIN(a[1], k)) : end;
            if (begin < until) {
                if (made == a[2].count)  /* the first set is none */
                    return too_short(a, 3);
                to[2 * made] = begin;
                to[2 * made + 1] = until;
                made++;
            }
            if (k == a[1].count)
                break;
            begin = LARGER(begin, END(a[1], k));
            j = k;
        }
    }
    closed(a, 3);
    return PyLong_FromSsize_t(made);
}

/* The last interval that begins at `at` or before; -1: none does. It is looked for near `from` first. */
static Py_ssize_t place(const Array *set, ns_t at, Py_ssize_t from)
{
    Py_ssize_t low = -1, high = set->count;
    for (int walked = 0; walked < NEAR; walked++) {
        if (from >= 0 && BEGIN(*set, from) > at) {
            high = from--;
        } else if (from + 1 < set->count && BEGIN(*set, from + 1) <= at) {
            low = ++from;
        } else {
            return from;
        }
    }
    while (high - low > 1) {
        Py_ssize_t middle = low + (high - low) / 2;
        if (BEGIN(*set, middle) <= at)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* How much lies before each interval; NULL with an exception. */
static ns_t *sums(const Array *set)
{
    ns_t *before = malloc(set->count * sizeof *before);
    uint64_t sum = 0;
    if (before == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    for (Py_ssize_t i = 0; i < set->count; i++) {
        before[i] = (ns_t)sum;
        sum += (uint64_t)END(*set, i) - (uint64_t)BEGIN(*set, i);
    }
    return before;
}

/* covered(intervals, begin, end, into): how much of each stretch they cover. */
static PyObject *covered(PyObject *self, PyObject *const *given, Py_ssize_t count)
{
    Array a[4];
    (void)self;
    if (all_opened(given, count, a, (const int[]){2, 1, 1, 1}, 4) < 0) {
        closed(a, 4);
        return NULL;
    }
    if (a[2].count != a[1].count || a[3].count != a[1].count)
        return too_short(a, 4);
    /* Only of stretches that are long. */
    ns_t *before = NULL;
    Py_ssize_t first = -1;
    for (Py_ssize_t i = 0; i < a[1].count; i++) {
        ns_t begin = NUMBER(a[1], i), end = NUMBER(a[2], i);
        uint64_t length = 0;  /* unsigned: what is garbage may overflow */
        if (end > begin && a[0].count > 0) {
            first = place(a, begin, first);
            Py_ssize_t at = first < 0 || END(a[0], first) <= begin ? first + 1 : first;
            Py_ssize_t near = LESSER(at + NEAR, a[0].count);
            for (; at < near && BEGIN(a[0], at) < end; at++)
                length += (uint64_t)LESSER(end, END(a[0], at)) - (uint64_t)LARGER(begin, BEGIN(a[0], at));
            if (at == near && at < a[0].count && BEGIN(a[0], at) < end) {
                if (before == NULL && (before = sums(a)) == NULL) {
                    closed(a, 4);
                    return NULL;
                }
                Py_ssize_t last = place(a, end, at);
                length += (uint64_t)before[last] - (uint64_t)before[at] + (uint64_t)LESSER(end, END(a[0], last)) -
                          (uint64_t)BEGIN(a[0], last);
            }
        }
        *(ns_t *)(a[3].at + i * a[3].step) = (ns_t)length;
    }
    free(before);
    closed(a, 4);
    Py_RETURN_NONE;
}

#define FUNCTION(name) {#name, (PyCFunction)(void (*)(void))name, METH_FASTCALL, NULL}
static PyMethodDef functions[] = {FUNCTION(united), FUNCTION(merged), FUNCTION(intersected), FUNCTION(subtracted),
                                  FUNCTION(covered), {0}};
static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, .m_name = "whyidle._intervals", .m_size = 0, .m_methods = functions};

PyMODINIT_FUNC PyInit__intervals(void)
{
    return PyModuleDef_Init(&module);
}
