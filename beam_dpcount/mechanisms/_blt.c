/* The recurrence of recurrence.py in C: the same integers, and so the same bytes and values.
 *
 * It is optional. Where it cannot be built (it needs integers of 128 bits), Python's is used.
 * A test holds the two against each other. Only the stable ABI, and only bytes go in and out:
 * nothing here knows of NumPy, and no address is taken from Python.
 */
#define Py_LIMITED_API 0x030A0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if !defined(__SIZEOF_INT128__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "integers of 128 bits in little-endian order are needed"
#endif

typedef __int128 i128;
typedef unsigned __int128 u128;

/* SPLIT: how many low bits of a number wide recurrences multiply separately. */
enum { MOST = 8, NUMBERS = 2 * MOST + 2, SIDE_BY_SIDE = 64, SPLIT = 24, LOW = (1 << SPLIT) - 1 };

/* Inlined wherever it is called, so that constants among its arguments are constants within. */
#define ALWAYS inline __attribute__((always_inline))

typedef struct { int64_t factor; int shift; } Dyadic;

/* Numbers: k_0 if `lead` is 1, k_1 .. k_d, E, m_1 .. m_d, in `width` bytes each; names are those of
 * recurrence.py. */
typedef struct {
    PyObject_HEAD
    int d, lead, count, size, S, P, G, GD, W, I, wide, brief, width[NUMBERS];
    int64_t horizon, most, *starts, *V, *D, *weight, *inverse;
    Py_ssize_t stretches;
    Dyadic a[MOST], e[MOST];
    int64_t c[MOST + 1], w[MOST];
    i128 Y;
    double grain; /* 2^-G */
} Recurrence;

typedef struct { i128 n[NUMBERS]; } Numbers;

/* Which stretch step t is in. */
static Py_ssize_t stretch_of(const Recurrence *r, int64_t t) {
    Py_ssize_t low = 0, high = r->stretches;
    while (high - low > 1) {
        Py_ssize_t middle = low + (high - low) / 2;
        if (r->starts[middle] <= t) low = middle; else high = middle;
    }
    return low;
}

/* floor(x * factor / 2^shift). With wide numbers the product may have SPLIT bits more than an i128
 * holds, so high and low bits are multiplied separately. The floor of a floor is exact. */
static inline i128 scaled(i128 x, int64_t factor, int shift, const int wide) {
    if (!wide) return (x * factor) >> shift;
    return ((x >> SPLIT) * factor + (((x & LOW) * factor) >> SPLIT)) >> (shift - SPLIT);
}

/* A sum of products, and floor(sum / 2^shift); `low` has the products of the low bits of wide numbers. */
typedef struct { i128 high, low; } Sum;

static inline void add(Sum *sum, i128 x, int64_t factor, const int wide) {
    sum->high += (wide ? x >> SPLIT : x) * factor;
    if (wide) sum->low += (x & LOW) * factor;
}

static inline i128 shifted(const Sum *sum, int shift, const int wide) {
    return wide ? (sum->high + (sum->low >> SPLIT)) >> (shift - SPLIT) : sum->high >> shift;
}

/* A step in stretch i; `next` is the D of the step after it. */
static inline i128 advanced(const Recurrence *r, Numbers *s, Py_ssize_t i, int64_t next, int64_t x,
                            int64_t z, const int wide) {
    int d = r->d, lead = r->lead;
    int64_t D = r->D[i];
    i128 *k = s->n + lead, *E = k + d, *m = E + 1, v = (i128)x * r->V[i], y, b, n;
    Sum sum = {0, 0}, held = {0, 0};
    if (lead) add(&sum, s->n[0] += v, r->c[0], wide);
    for (int j = 0; j < d; j++) {
        k[j] += v - scaled(k[j], r->a[j].factor, r->a[j].shift, wide);
        add(&sum, k[j], r->c[lead + j], wide);
    }
    y = ((shifted(&sum, r->S, wide) * r->weight[i] + ((i128)1 << (r->W - 1))) >> r->W) + z;
    y = (y > r->Y ? r->Y : y < -r->Y ? -r->Y : y) * r->inverse[i];
    y = r->G <= r->I ? y >> (r->I - r->G) : y * ((i128)1 << (r->G - r->I));
    for (int j = 0; j < d; j++) {
        add(&held, m[j], r->w[j], wide);
        m[j] += y - scaled(m[j], r->e[j].factor, r->e[j].shift, wide);
    }
    b = y + shifted(&held, r->P, wide);
    n = scaled(b, D, r->GD, wide) + *E;
    if (next != D) *E += scaled(b, D - next, r->GD, wide);
    return n;
}

static i128 advance(const Recurrence *r, Numbers *s, Py_ssize_t i, int64_t next, int64_t x,
                    int64_t z) {
    return r->wide ? advanced(r, s, i, next, x, z, 1) : advanced(r, s, i, next, x, z, 0);
}

/* 16 bytes at a time, which is one load or store, in a copy with room behind the last number. */
static void unpack(const Recurrence *r, const char *data, Numbers *s) {
    char copy[16 * NUMBERS + 16];
    const char *at = copy;
    memcpy(copy, data, r->size);
    memset(copy + r->size, 0, 16);
    for (int i = 0; i < r->count; at += r->width[i++]) {
        u128 bits;
        int above = 128 - 8 * r->width[i];
        memcpy(&bits, at, 16);
        s->n[i] = (i128)(bits << above) >> above;
    }
}

static void pack(const Recurrence *r, char *data, const Numbers *s) {
    char copy[16 * NUMBERS + 16], *at = copy;
    for (int i = 0; i < r->count; at += r->width[i++]) memcpy(at, &s->n[i], 16);
    memcpy(data, copy, r->size);
}

/* The same for brief numbers: all of them, b and n fit 64 bits, so that a product is one instruction.
 * Sums may wrap around on the way, hence unsigned. d and lead are constants where it is inlined. */
static inline int64_t plus(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }
static inline int64_t minus(int64_t a, int64_t b) { return (int64_t)((uint64_t)a - (uint64_t)b); }
static inline int64_t times(int64_t a, int64_t b) { return (int64_t)((uint64_t)a * (uint64_t)b); }

static ALWAYS int64_t advanced_briefly(const Recurrence *r, int64_t *s, Py_ssize_t i, int64_t next,
                                       int64_t x, int64_t z, const int d, const int lead) {
    int64_t D = r->D[i], *k = s + lead, *E = k + d, *m = E + 1, v = times(x, r->V[i]), b, n;
    i128 sum = 0, held = 0, y;
    if (lead) sum = (i128)(s[0] = plus(s[0], v)) * r->c[0];
    for (int j = 0; j < d; j++) {
        int64_t lost = (int64_t)(((i128)k[j] * r->a[j].factor) >> r->a[j].shift);
        k[j] = plus(k[j], minus(v, lost));
        sum += (i128)k[j] * r->c[lead + j];
    }
    y = (((sum >> r->S) * r->weight[i] + ((i128)1 << (r->W - 1))) >> r->W) + z;
    y = (y > r->Y ? r->Y : y < -r->Y ? -r->Y : y) * r->inverse[i];
    y = r->G <= r->I ? y >> (r->I - r->G) : y * ((i128)1 << (r->G - r->I));
    for (int j = 0; j < d; j++) {
        int64_t lost = (int64_t)(((i128)m[j] * r->e[j].factor) >> r->e[j].shift);
        held += (i128)m[j] * r->w[j];
        m[j] = plus(m[j], minus((int64_t)y, lost));
    }
    b = plus((int64_t)y, (int64_t)(held >> r->P));
    n = plus((int64_t)(((i128)b * D) >> r->GD), *E);
    if (next != D) *E = plus(*E, (int64_t)(((i128)b * minus(D, next)) >> r->GD));
    return n;
}

/* Steps of streams side by side: n rows of z and perhaps x and values, from step t on. */
typedef struct {
    const char *from, *xs, *zs;
    char *to, *out;
    int64_t t, n, streams;
} Steps;

/* 8 bytes at a time, which a stream has at least. A store may reach into the next stream, which is
 * stored afterwards; the last one has none, so it goes through a copy with room. Returns whether an
 * input was too large. */
static ALWAYS int run_briefly(const Recurrence *r, const Steps *a, const int d, const int lead) {
    const int count = lead + 2 * d + 1;
    int64_t s[SIDE_BY_SIDE][2 * MOST + 2];
    char copy[8 * NUMBERS + 8];
    int overflow = 0;
    for (int64_t first = 0; first < a->streams && !overflow; first += SIDE_BY_SIDE) {
        int many = a->streams - first < SIDE_BY_SIDE ? (int)(a->streams - first) : SIDE_BY_SIDE;
        for (int j = 0; j < many; j++) {
            const char *at = a->from + (first + j) * r->size;
            if (first + j == a->streams - 1) at = memcpy(memset(copy, 0, sizeof copy), at, r->size);
            for (int i = 0; i < count; at += r->width[i++]) {
                uint64_t bits;
                int above = 64 - 8 * r->width[i];
                memcpy(&bits, at, 8);
                s[j][i] = (int64_t)(bits << above) >> above;
            }
        }
        Py_ssize_t i = stretch_of(r, a->t), following;
        for (int64_t row = 0; row < a->n; row++, i = following) {
            int64_t at = 8 * (row * a->streams + first);
            following = i + 1 < r->stretches && r->starts[i + 1] == a->t + row + 1 ? i + 1 : i;
            for (int j = 0; j < many; j++) {
                int64_t x = 0, z;
                double value;
                memcpy(&z, a->zs + at + 8 * j, 8);
                if (a->xs) memcpy(&x, a->xs + at + 8 * j, 8);
                if (x > r->most || x < -r->most) { overflow = 1; x = 0; }
                value = (double)advanced_briefly(r, s[j], i, r->D[following], x, z, d, lead) * r->grain;
                if (a->out) memcpy(a->out + at + 8 * j, &value, 8);
            }
        }
        for (int j = 0; j < many; j++) {
            char *to = a->to + (first + j) * r->size;
            int is_last = first + j == a->streams - 1;
            char *at = is_last ? copy : to;
            for (int i = 0; i < count; at += r->width[i++]) memcpy(at, &s[j][i], 8);
            if (is_last) memcpy(to, copy, r->size);
        }
    }
    return overflow;
}

#define BRIEFLY(d) case d: return r->lead ? run_briefly(r, a, d, 1) : run_briefly(r, a, d, 0)

static int run_all_briefly(const Recurrence *r, const Steps *a) {
    switch (r->d) {
        BRIEFLY(1); BRIEFLY(2); BRIEFLY(3); BRIEFLY(4); BRIEFLY(5); BRIEFLY(6); BRIEFLY(7);
        default: return r->lead ? run_briefly(r, a, MOST, 1) : run_briefly(r, a, MOST, 0);
    }
}

/* Bytes of this length, or NULL and an error. */
static char *bytes_of(PyObject *object, Py_ssize_t size) {
    char *data;
    Py_ssize_t found;
    if (PyBytes_AsStringAndSize(object, &data, &found) < 0) return NULL;
    if (found == size) return data;
    PyErr_SetString(PyExc_ValueError, "bytes of another length were expected");
    return NULL;
}

static PyObject *too_large(void) {
    PyErr_SetString(PyExc_OverflowError, "an input is larger than this mechanism was made for");
    return NULL;
}

/* step(state, t, x, z) -> (state, value): step t, from 1, of one stream */
static PyObject *step(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    const Recurrence *r = (Recurrence *)self;
    Numbers s;
    int64_t t, x, z;
    Py_ssize_t i;
    char *data;
    PyObject *state, *value, *both;
    if (n != 4) return PyErr_Format(PyExc_TypeError, "step takes four arguments");
    if (!(data = bytes_of(args[0], r->size))) return NULL;
    t = PyLong_AsLongLong(args[1]), x = PyLong_AsLongLong(args[2]), z = PyLong_AsLongLong(args[3]);
    if (PyErr_Occurred()) return NULL;
    if (x > r->most || x < -r->most) return too_large();
    if (t < 1 || t > r->horizon) return PyErr_Format(PyExc_ValueError, "no such step");
    unpack(r, data, &s);
    i = stretch_of(r, t);
    Py_ssize_t following = i + 1 < r->stretches && r->starts[i + 1] == t + 1 ? i + 1 : i;
    i128 given = advance(r, &s, i, r->D[following], x, z);
    if (!(state = PyBytes_FromStringAndSize(NULL, r->size))) return NULL;
    pack(r, PyBytes_AsString(state), &s);
    value = PyFloat_FromDouble((double)given * r->grain);
    both = value ? PyTuple_New(2) : NULL;
    if (!both) { Py_DECREF(state); Py_XDECREF(value); return NULL; }
    PyTuple_SetItem(both, 0, state);
    PyTuple_SetItem(both, 1, value);
    return both;
}

/* run(states, t, n, streams, xs or None, zs, wanted) -> (states, values or None)
 *
 * n steps, from step t on, of many streams side by side: xs and zs are int64 of shape (n, streams),
 * xs None for zeros; values are float64 of the same shape, if they are wanted. */
static PyObject *run(PyObject *self, PyObject *args) {
    const Recurrence *r = (Recurrence *)self;
    long long t, n, streams;
    int wanted, overflow = 0;
    PyObject *before, *xs_given, *zs_given, *after, *values = NULL, *both = NULL;
    char *from, *to, *xs = NULL, *zs, *out = NULL;
    Numbers *s;
    if (!PyArg_ParseTuple(args, "OLLLOOp", &before, &t, &n, &streams, &xs_given, &zs_given, &wanted))
        return NULL;
    if (t < 1 || n < 0 || streams < 0 || n > r->horizon || t > r->horizon + 1 - n ||
        (n && streams > PY_SSIZE_T_MAX / 8 / n) || streams > PY_SSIZE_T_MAX / r->size)
        return PyErr_Format(PyExc_ValueError, "no such steps");
    if (!(from = bytes_of(before, streams * r->size)) || !(zs = bytes_of(zs_given, 8 * n * streams)) ||
        (xs_given != Py_None && !(xs = bytes_of(xs_given, 8 * n * streams))))
        return NULL;
    if (!(after = PyBytes_FromStringAndSize(NULL, streams * r->size))) return NULL;
    to = PyBytes_AsString(after);
    s = malloc(SIDE_BY_SIDE * sizeof(Numbers));
    if (wanted && (values = PyBytes_FromStringAndSize(NULL, 8 * n * streams)))
        out = PyBytes_AsString(values);
    if (!s) PyErr_NoMemory();
    if (!s || (wanted && !values)) goto done;

    Py_BEGIN_ALLOW_THREADS
    if (r->brief) {
        Steps all = {from, xs, zs, to, out, t, n, streams};
        overflow = run_all_briefly(r, &all);
    }
    else for (int64_t first = 0; first < streams && !overflow; first += SIDE_BY_SIDE) {
        int many = streams - first < SIDE_BY_SIDE ? (int)(streams - first) : SIDE_BY_SIDE;
        for (int j = 0; j < many; j++) unpack(r, from + (first + j) * r->size, s + j);
        Py_ssize_t i = stretch_of(r, t), following;
        for (int64_t row = 0; row < n; row++, i = following) {
            int64_t at = 8 * (row * streams + first);
            following = i + 1 < r->stretches && r->starts[i + 1] == t + row + 1 ? i + 1 : i;
            for (int j = 0; j < many; j++) {
                int64_t x = 0, z;
                double value;
                memcpy(&z, zs + at + 8 * j, 8);
                if (xs) memcpy(&x, xs + at + 8 * j, 8);
                if (x > r->most || x < -r->most) { overflow = 1; x = 0; }
                value = (double)advance(r, s + j, i, r->D[following], x, z) * r->grain;
                if (out) memcpy(out + at + 8 * j, &value, 8);
            }
        }
        for (int j = 0; j < many; j++) pack(r, to + (first + j) * r->size, s + j);
    }
    Py_END_ALLOW_THREADS

    if (overflow) { too_large(); goto done; }
    if (!(both = PyTuple_New(2))) goto done;
    PyTuple_SetItem(both, 0, after);
    if (!values) { Py_INCREF(Py_None); values = Py_None; }
    PyTuple_SetItem(both, 1, values);
    free(s);
    return both;
done:
    free(s);
    Py_DECREF(after);
    Py_XDECREF(values);
    return NULL;
}

/* The numbers of a sequence: count of them, or as many as there are. NULL and an error, or memory
 * to free. */
static int64_t *numbers_of(PyObject *given, Py_ssize_t count, Py_ssize_t *found) {
    Py_ssize_t n = PySequence_Size(given);
    int64_t *made;
    if (n < 0) return NULL;
    if (n == 0 || (count && n != count)) {
        PyErr_SetString(PyExc_ValueError, "a sequence of another length was expected");
        return NULL;
    }
    if (!(made = malloc(sizeof(int64_t) * n))) { PyErr_NoMemory(); return NULL; }
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *item = PySequence_GetItem(given, i);
        made[i] = item ? PyLong_AsLongLong(item) : -1;
        Py_XDECREF(item);
        if (PyErr_Occurred()) { free(made); return NULL; }
    }
    if (found) *found = n;
    return made;
}

/* The last five are by stretch, and are kept. There are as many weights c as numbers k. */
enum { LISTS = 12, WEIGHTS = 4, STRETCHES = 7 };

/* Recurrence(d, S, P, G, GD, W, I, horizon, most, Y's power of two, a, a's shifts, e, e's shifts, c,
 * w, widths, starts, V, D, weights, inverses, wide, brief): S is the shift of a row's sum, W that of
 * its weight; wide says that products may have SPLIT bits more, brief that numbers, b and n fit 64 bits */
static PyObject *make(PyTypeObject *type, PyObject *args, PyObject *named) {
    int d, S, P, G, GD, W, I, Y, wide = 0, brief = 0;
    long long horizon, most;
    PyObject *given[LISTS];
    int64_t *read[LISTS] = {0};
    Py_ssize_t stretches = 0, all = 0;
    Recurrence *r;
    (void)named;
    if (!PyArg_ParseTuple(args, "iiiiiiiLLiOOOOOOOOOOOO|pp", &d, &S, &P, &G, &GD, &W, &I, &horizon,
                          &most, &Y, given, given + 1, given + 2, given + 3, given + 4, given + 5,
                          given + 6, given + 7, given + 8, given + 9, given + 10, given + 11, &wide,
                          &brief))
        return NULL;
    if (d < 1 || d > MOST || S < 0 || S > 126 || P < 1 || P > 126 || G < 0 || G > 62 || GD < 0 ||
        GD > 126 || W < 1 || W > 126 || I < 0 || I > 62 || Y < 0 || Y > 120 || horizon < 1 ||
        most < 0 || (wide && (brief || S < SPLIT || P < SPLIT || GD < SPLIT)))
        return PyErr_Format(PyExc_ValueError, "constants are out of range");
    r = (Recurrence *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (!r) return NULL;
    r->d = d, r->S = S, r->P = P, r->G = G, r->GD = GD, r->W = W, r->I = I, r->wide = wide;
    r->brief = brief, r->horizon = horizon, r->most = most;
    r->Y = (i128)1 << Y, r->grain = 1.0 / (double)((int64_t)1 << G);
    Py_ssize_t counts[LISTS] = {d, d, d, d, 0, d}, *lengths[LISTS] = {0};
    lengths[WEIGHTS] = &all, lengths[STRETCHES] = &stretches;
    for (int i = 0; i < LISTS; i++) {
        if (i > STRETCHES) counts[i] = stretches;
        if (i == WEIGHTS + 2) counts[i] = r->count;
        if (!(read[i] = numbers_of(given[i], counts[i], lengths[i]))) goto failed;
        if (i == WEIGHTS) {
            if (all != d && all != d + 1) {
                PyErr_SetString(PyExc_ValueError, "a sequence of another length was expected");
                goto failed;
            }
            r->lead = (int)all - d, r->count = (int)all + d + 1;
        }
    }
    for (int i = 0; i < d; i++) {
        int least = wide ? SPLIT : 0;
        if (read[1][i] < least || read[1][i] > 126 || read[3][i] < least || read[3][i] > 126) {
            PyErr_SetString(PyExc_ValueError, "constants are out of range");
            goto failed;
        }
        r->a[i].factor = read[0][i], r->a[i].shift = (int)read[1][i];
        r->e[i].factor = read[2][i], r->e[i].shift = (int)read[3][i];
        r->w[i] = read[5][i];
    }
    for (int i = 0; i < all; i++) r->c[i] = read[WEIGHTS][i];
    for (int i = 0; i < r->count; i++) {
        if (read[6][i] < 1 || read[6][i] > (brief ? 8 : 16)) {
            PyErr_SetString(PyExc_ValueError, "constants are out of range");
            goto failed;
        }
        r->width[i] = (int)read[6][i];
        r->size += r->width[i];
    }
    if (brief && r->size < 8) {
        PyErr_SetString(PyExc_ValueError, "constants are out of range");
        goto failed;
    }
    for (Py_ssize_t i = 0; i < stretches; i++)
        if (i ? read[STRETCHES][i] <= read[STRETCHES][i - 1] : read[STRETCHES][i] != 1) {
            PyErr_SetString(PyExc_ValueError, "stretches are out of order");
            goto failed;
        }
    r->stretches = stretches;
    r->starts = read[7], r->V = read[8], r->D = read[9], r->weight = read[10], r->inverse = read[11];
    for (int i = 0; i < STRETCHES; i++) free(read[i]);
    return (PyObject *)r;
failed:
    for (int i = 0; i < LISTS; i++) free(read[i]);
    Py_DECREF(r);
    return NULL;
}

static void drop(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    Recurrence *r = (Recurrence *)self;
    free(r->starts), free(r->V), free(r->D), free(r->weight), free(r->inverse);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"step", (PyCFunction)(void (*)(void))step, METH_FASTCALL, NULL},
    {"run", run, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot slots[] = {{Py_tp_new, make}, {Py_tp_dealloc, drop}, {Py_tp_methods, methods}, {0, NULL}};
static PyType_Spec spec = {"beam_dpcount.mechanisms._blt.Recurrence", sizeof(Recurrence), 0, Py_TPFLAGS_DEFAULT, slots};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_blt", NULL, -1, NULL, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__blt(void) {
    PyObject *made = PyModule_Create(&module), *type = made ? PyType_FromSpec(&spec) : NULL;
    if (type && PyModule_AddObject(made, "Recurrence", type) == 0) return made;
    Py_XDECREF(type);
    Py_XDECREF(made);
    return NULL;
}
