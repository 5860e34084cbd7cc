/* The steady path of a training's hooks: what they do in a step like the one before it (profiler/native.py).

The state is that of the Python classes, which have the types here for bases: `Recorder` of capture/steps.py,
`Detector` of capture/loop_detector, `Appender` of record/segment.py, `Forward` of capture/hooks/forward.py,
`FetchTimer` of capture/workers/fetch_timing.py. A function here either does all that Python's does in the common case,
or changes nothing and says so: then Python does it. What each step of it is for is said there. Only the thread that
holds the GIL is here, and it never gives it up. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>
#include <limits.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

typedef long long ns_t;
#define NOT_MEASURED LLONG_MIN
#define WORDS 64  /* more than a step's record has */
#define KEPT 64
#define MOST_PARTS 8  /* of a batch, whose shapes are looked at here */

enum { NOT_OURS = 0, DONE = 1, OPEN = 2 };  /* and -1 with an exception */

static ns_t clock_ns(clockid_t of)
{
    struct timespec t;
    clock_gettime(of, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}
#define NOW() clock_ns(CLOCK_MONOTONIC)

/* What `lay_out` was told: where things lie in Python's objects and in a step's record, and what they are called. */
#define FIELDS(F) F(step) F(epoch) F(flags) F(samples) F(fetch_begin_ns) F(fetch_end_ns) F(step_end_ns) F(queue_ready) \
    F(queue_capacity) F(loader) F(batch) F(forward_begin_ns) F(backward_begin_ns) F(optimizer_begin_ns) \
    F(optimizer_end_ns) F(gc_ns) F(cpu_ns) F(overhead_ns) F(skipped) F(skipped_samples) F(skipped_end_ns) \
    F(FORWARD_AFTER) F(FORWARD_SEEN) F(OPTIMIZER) F(NEW_SHAPE) F(ONE_ELEMENT) F(words) F(LEAST_STAGE_NS) F(LEAST_DRAW_NS)
#define SLOTS(S) S(pass, learnings_then) S(pass, steady) S(pass, fetched) S(pass, epoch) S(pass, queue) S(pass, done) \
    S(pass, ever_learnt) S(pass, role) S(role, direct) S(role, use) S(pace, updates) S(switch, on) S(known, iterator) \
    S(known, iteration) S(known, lengths) S(known, counts) S(known, passes)
#define F(name) ns_t name;
static struct { FIELDS(F) } at;
#undef F
#define S(of, name) Py_ssize_t of##_##name;
static struct { SLOTS(S) } slot;
#undef S
static ns_t blank[WORDS], nowhere[WORDS];  /* what a recorder fills whose row is no step's */
static PyTypeObject *type_pass, *type_role, *type_pace, *type_switch, *type_known;
static PyObject *monotonic, *opens, *trains, *tensor, *modes, *not_delivered, *zero;
static PyObject *s_ready, *s_capacity, *s_popleft, *s_append, *s_shape, *s_dtype, *s_loader, *s_order,
    *s_rcvd, *s_plan, *s_room, *s_collected;

#define IS(object, of) ((object) != NULL && Py_TYPE(object) == type_##of)
#define SLOT(object, name) (*(PyObject **)((char *)(object) + slot.name))
#define OR_NONE(object) ((object) == NULL ? Py_None : (object))

static void put(PyObject **place, PyObject *what)
{
    PyObject *before = *place;
    *place = Py_NewRef(what);
    Py_XDECREF(before);
}

static int number(PyObject *from, ns_t *to)
{
    *to = from == NULL ? 0 : PyLong_AsLongLong(from);
    return *to == -1 && PyErr_Occurred() ? -1 : 0;
}

/* The object that a weak reference stands for, if that is `is`. */
static int refers_to(PyObject *reference, PyObject *is)
{
    if (reference == NULL || !PyWeakref_Check(reference))
        return 0;
#if PY_VERSION_HEX >= 0x030D0000
    PyObject *found = NULL;
    if (PyWeakref_GetRef(reference, &found) < 0)
        PyErr_Clear();
    Py_XDECREF(found);
    return found == is;
#else
    return PyWeakref_GetObject(reference) == is;
#endif
}

/* Types whose members Python's classes fill: each has its objects first, so that one function sees to all of them. */
typedef struct { PyObject_HEAD ns_t position, limit, stored, size, address, body_words; } Appender;

typedef struct {
    PyObject_HEAD
    PyObject *graph, *marks, *on_step, *on_batch, *row, *steps, *now, *thinning, *collections;
    ns_t flags, handed, cleared, last, overhead, graph_then, graph_before, looks, to_skip, skip_left, count,
        skipped, skipped_samples, skipped_until, skipped_end, passing_samples, gc, gc_at_begin, cpu, due;
    char recording, passing, all_looked_at, model_called;
    Py_buffer view;  /* of the row whose words are filled */
    ns_t *word;
    ns_t looked[KEPT][2];
    int kept;
} Recorder;
#define RECORDER_OBJECTS 9

typedef struct {
    PyObject_HEAD
    PyObject *open, *own, *part, *waiting, *capturing, *on_learning, *follow, *delivered, *pace;
    ns_t thread, learnings, passes, updated, opened, asked, last, samples, boundary;
    char inside, learnt, shared, unsettled, fetching;
} Detector;
#define DETECTOR_OBJECTS 9

typedef struct {
    PyObject_HEAD
    PyObject *module, *told, *on;
    ns_t missed;
    char armed, looking, sees_clearing;
} Forward;
#define FORWARD_OBJECTS 3

typedef struct {
    PyObject_HEAD
    PyObject *pending, *on;
    ns_t not_before, left_out, left_out_samples, left_out_ns;
    char busy;
} FetchTimer;
#define FETCH_TIMER_OBJECTS 2

typedef struct {
    PyObject_HEAD
    PyObject *recorder, *detector, *known, *on, *flags_of, *shapes_on, *shapes;
    ns_t shape_flags;
    char asking;  /* within `__next__`, of a step that was opened here */
} Steady;
#define STEADY_OBJECTS 7
#define R(s) ((Recorder *)(s)->recorder)
#define D(s) ((Detector *)(s)->detector)

#define OBJECTS(type, N) \
    static int type##_traverse(PyObject *self, visitproc visit, void *arg) \
    { for (int i = 0; i < N; i++) Py_VISIT(((PyObject **)(self + 1))[i]); return 0; } \
    static int type##_clear(PyObject *self) \
    { for (int i = 0; i < N; i++) Py_CLEAR(((PyObject **)(self + 1))[i]); return 0; } \
    static void type##_dealloc(PyObject *self) \
    { PyObject_GC_UnTrack(self); type##_last(self); type##_clear(self); Py_TYPE(self)->tp_free(self); }

static void Recorder_last(PyObject *self)
{
    PyBuffer_Release(&((Recorder *)self)->view);
}
static void Detector_last(PyObject *Py_UNUSED(self)) {}
static void Forward_last(PyObject *self);
static void FetchTimer_last(PyObject *Py_UNUSED(self)) {}
static void Steady_last(PyObject *Py_UNUSED(self)) {}
OBJECTS(Recorder, RECORDER_OBJECTS)
OBJECTS(Detector, DETECTOR_OBJECTS)
OBJECTS(Forward, FORWARD_OBJECTS)
OBJECTS(FetchTimer, FETCH_TIMER_OBJECTS)
OBJECTS(Steady, STEADY_OBJECTS)

#define INT(type, field, name) {name, T_LONGLONG, offsetof(type, field), 0, NULL}
#define BIT(type, field, name) {name, T_BOOL, offsetof(type, field), 0, NULL}
#define OBJ(type, field, name) {name, T_OBJECT, offsetof(type, field), 0, NULL}
static PyMemberDef Appender_members[] = {
    INT(Appender, position, "_position"), INT(Appender, limit, "_limit"), INT(Appender, stored, "stored"),
    INT(Appender, size, "_size"), INT(Appender, address, "_address"), INT(Appender, body_words, "_body_words"), {0}};
static PyMemberDef Recorder_members[] = {
    OBJ(Recorder, graph, "graph"), OBJ(Recorder, marks, "_marks"), OBJ(Recorder, on_step, "on_step"),
    OBJ(Recorder, on_batch, "on_batch"), OBJ(Recorder, row, "_row"), OBJ(Recorder, steps, "_steps"),
    OBJ(Recorder, now, "_now"), OBJ(Recorder, thinning, "_thinning"), OBJ(Recorder, collections, "collections"),
    INT(Recorder, flags, "_flags"),
    INT(Recorder, handed, "_handed_ns"), INT(Recorder, cleared, "_cleared_ns"), INT(Recorder, last, "_last_ns"),
    INT(Recorder, overhead, "_overhead"), INT(Recorder, graph_then, "_graph_then"),
    INT(Recorder, graph_before, "_graph_before"), INT(Recorder, looks, "_looks"), INT(Recorder, to_skip, "_to_skip"),
    INT(Recorder, skip_left, "skip_left"), INT(Recorder, count, "count"), INT(Recorder, skipped, "skipped"),
    INT(Recorder, skipped_samples, "skipped_samples"),
    INT(Recorder, skipped_until, "skipped_until_ns"), INT(Recorder, skipped_end, "_skipped_end_ns"),
    INT(Recorder, passing_samples, "_passing_samples"), INT(Recorder, gc, "gc_ns"),
    INT(Recorder, gc_at_begin, "_gc_at_begin"), INT(Recorder, cpu, "_cpu_ns"), INT(Recorder, due, "due_ns"),
    BIT(Recorder, recording, "recording"), BIT(Recorder, passing, "passing"),
    BIT(Recorder, all_looked_at, "all_looked_at"), BIT(Recorder, model_called, "_model_called"), {0}};
static PyMemberDef Detector_members[] = {
    OBJ(Detector, open, "open"), OBJ(Detector, own, "own"), OBJ(Detector, part, "part"),
    OBJ(Detector, waiting, "waiting"), OBJ(Detector, capturing, "capturing"),
    OBJ(Detector, on_learning, "on_learning"), OBJ(Detector, follow, "follow"),
    OBJ(Detector, delivered, "_delivered"), OBJ(Detector, pace, "_pace"), INT(Detector, thread, "thread"),
    INT(Detector, learnings, "learnings"), INT(Detector, passes, "passes"), INT(Detector, updated, "updated"),
    INT(Detector, opened, "_opened_ns"), INT(Detector, asked, "_asked_ns"), INT(Detector, last, "_last_ns"),
    INT(Detector, samples, "_samples"), INT(Detector, boundary, "_boundary_ns"), BIT(Detector, inside, "inside"),
    BIT(Detector, learnt, "learnt"), BIT(Detector, shared, "shared"), BIT(Detector, unsettled, "_unsettled"),
    BIT(Detector, fetching, "fetching"), {0}};
static PyMemberDef Forward_members[] = {
    OBJ(Forward, module, "_module"), OBJ(Forward, told, "_told"), OBJ(Forward, on, "switch"),
    INT(Forward, missed, "_missed"), BIT(Forward, armed, "_armed"), BIT(Forward, looking, "_looking"),
    BIT(Forward, sees_clearing, "_sees_clearing"), {0}};
static PyMemberDef FetchTimer_members[] = {
    OBJ(FetchTimer, pending, "_pending"), OBJ(FetchTimer, on, "switch"), INT(FetchTimer, not_before, "_not_before"),
    INT(FetchTimer, left_out, "left_out"), INT(FetchTimer, left_out_samples, "left_out_samples"),
    INT(FetchTimer, left_out_ns, "left_out_ns"), BIT(FetchTimer, busy, "_busy"), {0}};

#define BASE(type) \
    static PyTypeObject type##_type = { \
        PyVarObject_HEAD_INIT(NULL, 0).tp_name = "whyidle._native." #type, .tp_basicsize = sizeof(type), \
        .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, .tp_new = PyType_GenericNew, \
        .tp_traverse = type##_traverse, .tp_clear = type##_clear, .tp_dealloc = type##_dealloc, \
        .tp_members = type##_members}
BASE(Recorder);
BASE(Detector);
BASE(Forward);
BASE(FetchTimer);
static PyTypeObject Appender_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "whyidle._native.Appender", .tp_basicsize = sizeof(Appender),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, .tp_new = PyType_GenericNew, .tp_members = Appender_members};

/* The step recorder: steps.py, of a device without a queue. */

/* Whether a recorder's step is one that can be written here. */
static int writes(Recorder *r)
{
    if ((r->marks != NULL && r->marks != Py_None) || r->now != monotonic || r->row == NULL || r->steps == NULL ||
        !PyObject_TypeCheck(r->steps, &Appender_type))
        return 0;
    if (r->row == r->view.obj)
        return 1;
    r->word = nowhere;
    PyBuffer_Release(&r->view);
    if (PyObject_GetBuffer(r->row, &r->view, PyBUF_WRITABLE) < 0) {
        PyErr_Clear();
        return 0;
    }
    if (r->view.len != 8 * at.words) {
        PyBuffer_Release(&r->view);
        return 0;
    }
    r->word = r->view.buf;
    return 1;
}

static int nodes(Recorder *r, ns_t *made)
{
    *made = 0;
    if (r->graph == NULL || r->graph == Py_None)
        return 0;
    PyObject *graph = Py_NewRef(r->graph), *told = PyObject_CallNoArgs(graph);
    Py_DECREF(graph);
    if (told == NULL)
        return -1;
    int code = number(told, made);
    Py_DECREF(told);
    return code;
}

/* What was collected since the last look belongs to the step that ends, or to none. */
static int collected(Recorder *r)
{
    if (r->collections == NULL || PyObject_Size(r->collections) <= 0)
        return PyErr_Occurred() ? -1 : 0;
    PyObject *told = PyObject_CallMethodNoArgs((PyObject *)r, s_collected);
    Py_XDECREF(told);
    return told == NULL ? -1 : 0;
}

static int tell_thinning(Recorder *r)
{
    for (int i = 0; i < r->kept; i++) {
        PyObject *told =
            PyObject_CallMethod(r->thinning, "looked", "LL", r->looked[i][0], r->looked[i][1]);
        if (told == NULL)
            return -1;
        Py_DECREF(told);
    }
    r->kept = 0;
    return 0;
}

static PyObject *Recorder_tell_looked(PyObject *self, PyObject *Py_UNUSED(none))
{
    return tell_thinning((Recorder *)self) < 0 ? NULL : Py_NewRef(Py_None);
}

static PyMethodDef Recorder_methods[] = {{"tell_looked", Recorder_tell_looked, METH_NOARGS, NULL}, {0}};

static int store(Recorder *r, ns_t now)
{
    ns_t *word = r->word, cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    r->recording = 0;
    word[at.flags] = r->flags;
    word[at.step_end_ns] = now;
    word[at.gc_ns] = r->gc - r->gc_at_begin;
    r->gc_at_begin = r->gc;
    word[at.cpu_ns] = cpu - r->cpu;
    r->cpu = cpu;
    word[at.overhead_ns] = r->overhead;
    r->overhead = 0;
    Appender *to = (Appender *)r->steps;
    int room = to->position < to->limit;
    if (!room) {
        PyObject *made = PyObject_CallMethodNoArgs(r->steps, s_room);
        if (made == NULL)
            return -1;
        room = made == Py_True;
        Py_DECREF(made);
    }
    if (room && to->address != 0 && to->size == 8 * (at.words + 1)) {
        ns_t *record = (ns_t *)((char *)(intptr_t)to->address + to->position);
        memcpy(record + 1, word, 8 * at.words);
        record[0] = ++to->stored;
        to->position += to->size;
    }
    if (r->kept == KEPT && tell_thinning(r) < 0)
        return -1;
    r->looked[r->kept][0] = now - word[at.fetch_begin_ns];
    r->looked[r->kept++][1] = word[at.overhead_ns];
    return 0;
}

static void let_pass(Recorder *r, ns_t now)
{
    r->skip_left--;
    r->passing = 1;
    r->passing_samples = 0;
    r->skipped_end = NOT_MEASURED;
    r->count++;
    r->skipped++;
    r->skipped_until = now;
}

static int fetch_begin(Recorder *r, PyObject *epoch, PyObject *queue, ns_t begin)
{
    ns_t now = begin, grown, number_of = 0, *word;
    if (collected(r) < 0 || nodes(r, &grown) < 0 || (epoch != Py_None && number(epoch, &number_of) < 0))
        return -1;
    if (r->recording) {
        if (!r->model_called && r->graph_before >= 0 && grown - r->graph_then > r->graph_before)
            r->flags |= at.FORWARD_AFTER;
        if (store(r, begin) < 0)
            return -1;
    } else {
        r->cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID);
        r->gc_at_begin = r->gc;
    }
    if (r->looks == 0) {
        if (r->skip_left > 0) {
            let_pass(r, begin);
            return 0;
        }
        PyObject *planned = PyObject_CallMethodOneArg((PyObject *)r, s_plan, Py_False);
        if (planned == NULL)
            return -1;
        Py_DECREF(planned);
    }
    if (--r->looks == 0)
        r->skip_left = r->to_skip;
    if (now >= r->due && r->on_step != NULL && r->on_step != Py_None) {
        PyObject *on_step = Py_NewRef(r->on_step), *took = PyObject_CallFunction(on_step, "LL", r->count, now);
        Py_DECREF(on_step);
        if (took == NULL)
            return -1;
        if (took == Py_True)
            begin = now = NOW();
        Py_DECREF(took);
    }
    word = r->word;  /* not before: what was called may have put another row there */
    memcpy(word, blank, 8 * at.words);
    r->recording = 1;
    r->passing = r->model_called = 0;
    r->graph_then = grown;
    r->graph_before = NOT_MEASURED;
    r->flags = 0;
    r->all_looked_at = r->to_skip == 0 && r->skipped == 0;
    word[at.step] = r->count++;
    word[at.fetch_begin_ns] = begin;
    word[at.epoch] = number_of;
    if (r->skipped) {
        word[at.skipped] = r->skipped;
        word[at.skipped_samples] = r->skipped_samples;
        word[at.skipped_end_ns] = r->skipped_end;
        r->skipped = r->skipped_samples = 0;
        r->skipped_end = NOT_MEASURED;
    }
    if (queue != Py_None) {
        PyObject *ready = PyObject_CallMethodNoArgs(queue, s_ready);
        PyObject *capacity = ready == NULL ? NULL : PyObject_GetAttr(queue, s_capacity);
        ns_t has, most;
        int code = capacity == NULL || number(ready, &has) < 0 || number(capacity, &most) < 0;
        Py_XDECREF(ready);
        Py_XDECREF(capacity);
        if (code)
            return -1;
        r->word[at.queue_ready] = has;
        r->word[at.queue_capacity] = most;
    }
    r->last = NOW();
    r->overhead += r->last - now;
    return 0;
}

/* The call that is awaited of a module: until then what Python calls of its class is ours, which is no attribute of
either, so that nothing that looks at models sees it and no copy has it. */
static struct { Forward *by; PyTypeObject *type; ternaryfunc call; } awaited;

static PyObject *module_call(PyObject *self, PyObject *args, PyObject *names);

static void awaits(Forward *f, PyObject *module)
{
    PyTypeObject *before = awaited.type, *type = module == NULL ? NULL : Py_TYPE(module);
    if (before != NULL && before->tp_call == module_call)  /* not so where the program gave it another `__call__` */
        before->tp_call = awaited.call;
    awaited.by = f;
    awaited.type = (PyTypeObject *)Py_XNewRef(type);
    if (type != NULL && type->tp_call != NULL) {
        awaited.call = type->tp_call;
        type->tp_call = module_call;
    }
    Py_XDECREF(before);
}

static PyObject *module_call(PyObject *self, PyObject *args, PyObject *names)
{
    ternaryfunc call = awaited.call;
    PyObject *told = NULL;
    if (awaited.by != NULL && refers_to(awaited.by->module, self)) {
        told = Py_XNewRef(awaited.by->told);
        awaits(NULL, NULL);
    }
    PyObject *done = told == NULL ? Py_NewRef(Py_None) : PyObject_CallNoArgs(told);
    Py_XDECREF(told);
    if (done == NULL)
        return NULL;
    Py_DECREF(done);
    return call(self, args, names);
}

static void Forward_last(PyObject *self)
{
    if ((PyObject *)awaited.by == self)
        awaits(NULL, NULL);
}

static PyObject *Forward_expects(PyObject *self, PyObject *module)
{
    Forward_last(self);
    if (module != Py_None)
        awaits((Forward *)self, module);
    Py_RETURN_NONE;
}

static PyMethodDef Forward_methods[] = {{"expects", Forward_expects, METH_O, NULL}, {0}};

/* A batch was handed over: the model that is known to be called next is awaited (forward.py). */
static int arm(Forward *f)
{
    if (!IS(f->on, switch) || SLOT(f->on, switch_on) != Py_True || f->looking || f->armed || f->module == NULL ||
        !PyWeakref_Check(f->module))
        return NOT_OURS;
    PyObject *module = PyObject_CallNoArgs(f->module);
    f->armed = module != NULL && module != Py_None;
    if (f->armed)
        awaits(f, module);
    Py_XDECREF(module);
    return module == NULL ? -1 : f->armed ? DONE : NOT_OURS;
}

static int fetch_end(Recorder *r, ns_t now, ns_t samples, ns_t loader, ns_t batch, ns_t flags)
{
    ns_t *word = r->word;
    word[at.fetch_end_ns] = word[at.forward_begin_ns] = now;
    word[at.samples] = samples;
    word[at.loader] = loader;
    word[at.batch] = batch;
    r->flags |= flags;
    if (r->graph != NULL && r->graph != Py_None && nodes(r, &r->graph_then) < 0)
        return -1;
    if (r->on_batch != NULL && r->on_batch != Py_None) {
        PyObject *on_batch = Py_NewRef(r->on_batch), *of = PyMethod_Check(on_batch) ? PyMethod_GET_SELF(on_batch) : NULL;
        int code = of != NULL && PyObject_TypeCheck(of, &Forward_type) ? arm((Forward *)of) : NOT_OURS;
        PyObject *told = code == NOT_OURS ? PyObject_CallNoArgs(on_batch) : Py_NewRef(Py_None);
        Py_DECREF(on_batch);
        Py_XDECREF(told);
        if (code < 0 || told == NULL)
            return -1;
    }
    r->cleared = 0;
    r->last = r->handed = NOW();
    r->overhead += r->last - now;
    return 0;
}

/* The detector of loops, and what it has the recorder do: loop_detector/detector.py, hooks/loader.py. */

static int is_here(Detector *d) { return (ns_t)PyThread_get_thread_ident() == d->thread; }

/* The batch is asked for that begins the next step of a training that goes on: of which pass, if it is DONE. */
static int asks(Steady *s, PyObject *known, PyObject *iterator, PyObject **asked)
{
    Recorder *r = R(s);
    Detector *d = D(s);
    PyObject *of;
    ns_t then;
    if (known == NULL || SLOT(s->on, switch_on) != Py_True || d->fetching || !is_here(d) ||
        !refers_to(SLOT(known, known_iterator), iterator))
        return NOT_OURS;
    of = SLOT(known, known_iteration);
    if (!IS(of, pass) || of != d->open || !IS(SLOT(of, pass_role), role) || !d->learnt || d->shared || d->waiting != Py_None ||
        SLOT(of, pass_done) != Py_False || SLOT(of, pass_steady) != Py_True || !writes(r))
        return NOT_OURS;
    if (number(SLOT(of, pass_learnings_then), &then) < 0)
        return -1;
    if (then == d->learnings)
        return NOT_OURS;
    ns_t now = NOW();
    d->learnt = d->inside = 0;
    put(&SLOT(SLOT(of, pass_role), role_direct), Py_True);
    put(&d->part, opens);
    d->opened = d->asked = now;
    *asked = Py_NewRef(of);
    if (r->passing && r->skip_left > 0) {
        let_pass(r, now);
        return DONE;
    }
    PyObject *epoch = Py_NewRef(OR_NONE(SLOT(of, pass_epoch))), *queue = Py_NewRef(OR_NONE(SLOT(of, pass_queue)));
    int code = fetch_begin(r, epoch, queue, now) < 0 ? -1 : DONE;
    Py_DECREF(epoch);
    Py_DECREF(queue);
    return code;
}

/* (shape, dtype) of the first few tensors of a batch, one after the other; `None` where they are not plain ones. */
static PyObject *shapes_of(PyObject *batch)
{
    PyObject *active = PyObject_CallNoArgs(modes);
    if (active == NULL)
        return NULL;
    int plain = PyObject_RichCompareBool(active, zero, Py_EQ) == 1 && (PyList_CheckExact(batch) || PyTuple_CheckExact(batch)) &&
                PySequence_Fast_GET_SIZE(batch) <= MOST_PARTS;
    Py_DECREF(active);
    Py_ssize_t count = plain ? PySequence_Fast_GET_SIZE(batch) : 0;
    PyObject *parts[MOST_PARTS];  /* held: what a collection calls may empty the list */
    for (Py_ssize_t i = 0; i < count; i++) {
        parts[i] = Py_NewRef(PySequence_Fast_GET_ITEM(batch, i));
        plain = plain && (PyObject *)Py_TYPE(parts[i]) == tensor;
    }
    PyObject *found = plain ? PyTuple_New(2 * count) : Py_NewRef(Py_None);
    for (Py_ssize_t i = 0; i < count; i++) {
        if (plain && found != NULL) {
            PyObject *shape = PyObject_GetAttr(parts[i], s_shape);
            PyObject *dtype = shape == NULL ? NULL : PyObject_GetAttr(parts[i], s_dtype);
            PyTuple_SET_ITEM(found, 2 * i, shape);
            PyTuple_SET_ITEM(found, 2 * i + 1, dtype);
            if (dtype == NULL && PyErr_ExceptionMatches(PyExc_Exception)) {
                PyErr_Clear();  /* a nested tensor has no shape */
                Py_SETREF(found, Py_NewRef(Py_None));
            } else if (dtype == NULL)
                Py_CLEAR(found);
            plain = dtype != NULL;
        }
        Py_DECREF(parts[i]);
    }
    return found;
}

/* What the open step says of the shapes of its batch: those of the batch before it mostly (hooks/shapes.py). */
static int shape_flags(Steady *s, PyObject *batch, ns_t *flags)
{
    *flags = 0;
    if (!R(s)->all_looked_at || SLOT(s->shapes_on, switch_on) != Py_True)
        return 0;
    PyObject *shapes = shapes_of(batch);
    if (shapes == NULL)
        return -1;
    PyObject *before = Py_NewRef(OR_NONE(s->shapes));
    int same = shapes == Py_None ? 0 : PyObject_RichCompareBool(shapes, before, Py_EQ);
    Py_DECREF(before);
    if (same == 1)
        *flags = s->shape_flags;
    else if (same == 0) {
        PyObject *told = PyObject_CallOneArg(s->flags_of, batch);
        same = told == NULL ? -1 : number(told, flags);
        Py_XDECREF(told);
        if (same == 0 && *flags && shapes != Py_None) {
            put(&s->shapes, shapes);
            s->shape_flags = *flags & ~at.NEW_SHAPE;
        }
    }
    Py_DECREF(shapes);
    return same < 0 ? -1 : 0;
}

/* Which batch it was, where workers make them. */
static int which(PyObject *passes, PyObject *iterator, ns_t *loader, ns_t *batch)
{
    if (passes == Py_None)
        return 0;
    PyObject *its = PyObject_GetAttr(passes, s_loader), *order = its == NULL ? NULL : PyObject_GetAttr(passes, s_order);
    int code = its == NULL || order == NULL || number(its, loader) < 0 ? -1 : 0;
    if (code == 0 && order != Py_None) {
        PyObject *received = PyObject_GetAttr(iterator, s_rcvd);
        ns_t first = 0, then = 0;
        code = received == NULL || number(order, &first) < 0 || number(received, &then) < 0 ? -1 : 0;
        *batch = first + then;
        Py_XDECREF(received);
    }
    Py_XDECREF(its);
    Py_XDECREF(order);
    return code;
}

/* It came. */
static int came(Steady *s, PyObject *known, PyObject *of, PyObject *iterator, PyObject *batch)
{
    Recorder *r = R(s);
    Detector *d = D(s);
    PyObject *lengths, *drawn, *passes;
    ns_t samples, loader = NOT_MEASURED, which_batch = NOT_MEASURED, flags = 0, fetched, now = NOW();
    if (SLOT(s->on, switch_on) != Py_True || SLOT(of, pass_steady) != Py_True ||
        of != d->open || d->part != opens || r->flags >= at.ONE_ELEMENT || !writes(r))
        return NOT_OURS;
    lengths = SLOT(known, known_lengths);
    if (lengths == NULL || number(SLOT(of, pass_fetched), &fetched) < 0)
        return PyErr_Occurred() ? -1 : NOT_OURS;
    drawn = PyObject_CallMethodNoArgs(lengths, s_popleft);
    if (drawn == NULL && PyErr_ExceptionMatches(PyExc_IndexError)) {
        PyErr_Clear();
        return NOT_OURS;
    }
    if (drawn == NULL || number(drawn, &samples) < 0) {
        Py_XDECREF(drawn);
        return -1;
    }
    Py_DECREF(drawn);
    passes = Py_NewRef(OR_NONE(SLOT(known, known_passes)));
    int code = r->recording ? shape_flags(s, batch, &flags) : 0;
    if (r->recording && code == 0)
        code = which(passes, iterator, &loader, &which_batch);
    Py_DECREF(passes);
    if (code < 0)
        return -1;
    PyObject *more = PyLong_FromLongLong(fetched + 1), *learnings = PyLong_FromLongLong(d->learnings);
    PyObject *both = loader < 0 && which_batch < 0 ? Py_NewRef(not_delivered) : Py_BuildValue("LL", loader, which_batch);
    int made = more != NULL && learnings != NULL && both != NULL;
    if (made) {
        put(&SLOT(of, pass_fetched), more);
        put(&SLOT(of, pass_learnings_then), learnings);
        put(&d->delivered, both);
        d->asked = d->last = now;
        d->samples = samples;
        d->inside = 1;
    }
    Py_XDECREF(more);
    Py_XDECREF(learnings);
    Py_XDECREF(both);
    if (!made)
        return -1;
    if (r->recording)
        return fetch_end(r, now, samples, loader, which_batch, flags) < 0 ? -1 : DONE;
    if (r->passing) {
        samples = samples < 0 ? 0 : samples;
        r->skipped_samples += samples - r->passing_samples;
        r->passing_samples = samples;
    }
    return DONE;
}

/* A backward pass begins, or an optimizer step; OPEN where its end is to be told. */
static int learns(Steady *s, int updates)
{
    Recorder *r = R(s);
    Detector *d = D(s);
    PyObject *of = d->open;
    if (!is_here(d) || d->follow != Py_None || d->capturing != Py_None || d->on_learning != Py_None || !writes(r))
        return NOT_OURS;
    if (!IS(of, pass) || SLOT(of, pass_steady) != Py_True)
        return NOT_OURS;
    if (!d->learnt) {
        if (!IS(SLOT(of, pass_role), role) || !IS(d->pace, pace) || d->shared || d->boundary)
            return NOT_OURS;
        d->learnt = 1;
        put(&SLOT(of, pass_ever_learnt), Py_True);
        put(&SLOT(SLOT(of, pass_role), role_use), trains);
        put(&SLOT(d->pace, pace_updates), zero);
    } else if (updates && d->unsettled)
        return NOT_OURS;
    d->learnings++;
    if (updates)
        d->updated = d->learnings;
    else
        d->passes++;
    if (!d->inside || !r->recording)
        return DONE;
    r->word[updates ? at.optimizer_begin_ns : at.backward_begin_ns] = r->last = NOW();
    if (!updates && r->graph != NULL && r->graph != Py_None && r->graph_before < 0) {
        ns_t grown;
        if (nodes(r, &grown) < 0)
            return -1;
        r->graph_before = grown - r->graph_then;
    }
    return OPEN;
}

/* An optimizer step is over. */
static int updated(Steady *s)
{
    Recorder *r = R(s);
    Detector *d = D(s);
    PyObject *of = d->open;
    ns_t fetched, grown;
    if (!is_here(d) || d->capturing != Py_None || !IS(of, pass) || of == d->own || !writes(r))
        return NOT_OURS;
    if (number(SLOT(of, pass_fetched), &fetched) < 0)
        return -1;
    if (fetched <= 2)
        return NOT_OURS;
    if (!d->inside || !r->recording)
        return DONE;
    r->word[at.optimizer_end_ns] = r->last = NOW();
    r->flags |= at.OPTIMIZER;
    if (r->graph != NULL && r->graph != Py_None) {
        if (nodes(r, &grown) < 0)
            return -1;
        if (r->graph_before < 0)
            r->graph_before = grown - r->graph_then;
        r->graph_then = grown;
    }
    return DONE;
}

/* The model is called that `arm` awaits. */
static int forward_begins(Steady *s, Forward *f)
{
    Recorder *r = R(s);
    Detector *d = D(s);
    if (!IS(f->on, switch) || SLOT(f->on, switch_on) != Py_True || !d->inside || !r->recording ||
        !is_here(d) || d->capturing != Py_None || !writes(r))
        return NOT_OURS;
    ns_t now = NOW(), *word = r->word;
    if (!f->sees_clearing && now - r->handed >= at.LEAST_STAGE_NS)
        return NOT_OURS;
    f->armed = 0;
    f->missed = 0;
    if (!(r->flags & at.FORWARD_SEEN) && r->graph_before < 0 && word[at.backward_begin_ns] == NOT_MEASURED &&
        word[at.optimizer_begin_ns] == NOT_MEASURED) {
        ns_t stage = now - r->handed - r->cleared;
        r->model_called = 1;
        if (stage >= at.LEAST_STAGE_NS) {
            r->flags |= at.FORWARD_SEEN;
            word[at.forward_begin_ns] = word[at.fetch_end_ns] + stage;
        }
    }
    r->last = NOW();
    r->overhead += r->last - now;
    return DONE;
}

static PyObject *Steady_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
    PyObject *recorder, *detector, *on, *flags_of, *shapes_on;
    if (!PyArg_ParseTuple(args, "O!O!O!OO!", &Recorder_type, &recorder, &Detector_type, &detector, type_switch, &on,
                          &flags_of, type_switch, &shapes_on))
        return NULL;
    if (((Recorder *)recorder)->now != monotonic)
        return PyErr_Format(PyExc_ValueError, "the recorder has a clock of its own");
    Steady *s = (Steady *)type->tp_alloc(type, 0);
    if (s != NULL) {
        s->recorder = Py_NewRef(recorder);
        s->detector = Py_NewRef(detector);
        s->on = Py_NewRef(on);
        s->flags_of = Py_NewRef(flags_of);
        s->shapes_on = Py_NewRef(shapes_on);
    }
    return (PyObject *)s;
}

static PyObject *Steady_follow(PyObject *self, PyObject *known)
{
    if (IS(known, known))
        put(&((Steady *)self)->known, known);
    else
        Py_CLEAR(((Steady *)self)->known);
    Py_RETURN_NONE;
}

static PyMethodDef Steady_methods[] = {
    {"follow", Steady_follow, METH_O, NULL},
    {0}};
static PyTypeObject Steady_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "whyidle._native.Steady", .tp_basicsize = sizeof(Steady),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, .tp_new = Steady_new, .tp_traverse = Steady_traverse,
    .tp_dealloc = Steady_dealloc, .tp_methods = Steady_methods};

/* What stands in the place of a function of torch's, or is what a hook of ours does: in the common case without a frame
of Python's. `slow` does the rarer cases, `first` and `second` are what each kind says. */
typedef struct {
    PyObject_HEAD
    PyObject *steady, *original, *slow, *first, *second, *fail, *space;
    vectorcallfunc call;
    char busy;
} Instead;
#define INSTEAD_OBJECTS 7
static void Instead_last(PyObject *Py_UNUSED(self)) {}
OBJECTS(Instead, INSTEAD_OBJECTS)

/* The error that is raised, with its traceback, and no longer raised. */
static PyObject *taken(void)
{
    PyObject *type, *error, *trace;
    PyErr_Fetch(&type, &error, &trace);
    PyErr_NormalizeException(&type, &error, &trace);
    if (error != NULL && trace != NULL)
        PyException_SetTraceback(error, trace);
    Py_XDECREF(type);
    Py_XDECREF(trace);
    return error;
}

static void raise_again(PyObject *error)
{
    PyErr_Restore(Py_NewRef(Py_TYPE(error)), error, PyException_GetTraceback(error));
}

/* An error of ours; what is none (an interrupt, an error of a handler of the program's) stays raised. */
static int failed(Instead *w)
{
    if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_Exception))
        return -1;
    PyObject *error = taken(), *done = error == NULL ? NULL : PyObject_CallOneArg(w->fail, error);
    Py_XDECREF(error);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

/* `__next__`. first(known, pass, iterator, batch) takes a batch that came otherwise, second(error, known, pass) what
was raised instead. */
static PyObject *next_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *names)
{
    Instead *w = (Instead *)self;
    Steady *s = (Steady *)w->steady;
    if (PyVectorcall_NARGS(nargsf) != 1 || names != NULL)
        return PyObject_Vectorcall(w->slow, args, nargsf, names);
    PyObject *known = Py_XNewRef(s->known), *of = NULL, *batch = NULL;
    int code = asks(s, known, args[0], &of);
    if (code != DONE) {
        if (code == NOT_OURS || failed(w) == 0)
            batch = PyObject_Vectorcall(w->slow, args, nargsf, NULL);
        Py_XDECREF(known);
        Py_XDECREF(of);
        return batch;
    }
    D(s)->fetching = s->asking = 1;
    batch = PyObject_Vectorcall(w->original, args, nargsf, NULL);
    D(s)->fetching = s->asking = 0;
    if (batch == NULL) {
        PyObject *error = taken(), *done = PyObject_CallFunctionObjArgs(w->second, error, known, of, NULL);
        if (done != NULL || failed(w) == 0)
            raise_again(error);
        else
            Py_DECREF(error);
        Py_XDECREF(done);
    } else {
        code = came(s, known, of, args[0], batch);
        PyObject *done = code == NOT_OURS ? PyObject_CallFunctionObjArgs(w->first, known, of, args[0], batch, NULL)
                                          : Py_NewRef(Py_None);
        if ((code < 0 || done == NULL) && failed(w) < 0)
            Py_CLEAR(batch);
        Py_XDECREF(done);
    }
    Py_DECREF(known);
    Py_DECREF(of);
    return batch;
}

/* `_next_index`. first(iterator, number) is told of indices that are not those of the batch that is asked for,
second(begin, end, number) of a sampler that took notable time. */
static PyObject *index_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *names)
{
    Instead *w = (Instead *)self;
    Steady *s = (Steady *)w->steady;
    if (PyVectorcall_NARGS(nargsf) != 1 || names != NULL || SLOT(s->on, switch_on) != Py_True || !is_here(D(s)))
        return PyObject_Vectorcall(w->original, args, nargsf, names);
    ns_t begin = R(s)->passing ? 0 : NOW();
    PyObject *index = PyObject_Vectorcall(w->original, args, nargsf, NULL), *done = Py_NewRef(Py_None);
    if (index == NULL) {
        Py_DECREF(done);
        return NULL;
    }
    ns_t drawn = PyList_CheckExact(index) ? PyList_GET_SIZE(index) : NOT_MEASURED, end = begin ? NOW() : 0;
    if (end - begin >= at.LEAST_DRAW_NS)
        Py_SETREF(done, PyObject_CallFunction(w->second, "LLL", begin, end, drawn));
    if (drawn >= 0 && done != NULL) {
        PyObject *known = Py_XNewRef(s->known);
        if (known == NULL || !refers_to(SLOT(known, known_iterator), args[0]))
            Py_SETREF(done, PyObject_CallFunction(w->first, "OL", args[0], drawn));
        else if (SLOT(known, known_counts) == Py_True) {
            PyObject *size = PyLong_FromLongLong(drawn), *lengths = Py_NewRef(OR_NONE(SLOT(known, known_lengths)));
            Py_SETREF(done, size == NULL ? NULL : PyObject_CallMethodOneArg(lengths, s_append, size));
            Py_XDECREF(size);
            Py_DECREF(lengths);
        }
        Py_XDECREF(known);
    }
    if (done == NULL && failed(w) < 0)
        Py_CLEAR(index);
    Py_XDECREF(done);
    return index;
}

/* `fetch` of a fetcher: in the training, where it makes its batches itself. `first`: what looks at them. */
static PyObject *fetch_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *names)
{
    Instead *w = (Instead *)self;
    Steady *s = (Steady *)w->steady;
    FetchTimer *f = (FetchTimer *)w->first;
    if (PyVectorcall_NARGS(nargsf) != 2 || names != NULL || !is_here(D(s)))
        return PyObject_Vectorcall(w->slow, args, nargsf, names);
    if (!R(s)->recording)
        return PyObject_Vectorcall(w->original, args, nargsf, NULL);
    ns_t now = s->asking && !f->busy && (f->pending == NULL || f->pending == Py_None) && IS(f->on, switch) &&
               SLOT(f->on, switch_on) == Py_True ? NOW() : NOT_MEASURED;
    if (now == NOT_MEASURED || now >= f->not_before)
        return PyObject_Vectorcall(w->slow, args, nargsf, NULL);
    f->busy = 1;
    PyObject *batch = PyObject_Vectorcall(w->original, args, nargsf, NULL);
    f->busy = 0;
    if (batch != NULL) {
        f->left_out++;
        f->left_out_ns += NOW() - now;
        f->left_out_samples += PyList_CheckExact(args[1]) ? PyList_GET_SIZE(args[1]) : 1;
    }
    return batch;
}

/* `torch.autograd.backward`; passes within one, as of segments that are computed again, are part of it. `first`: the
hook's switch. */
static PyObject *backward_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *names)
{
    Instead *w = (Instead *)self;
    Steady *s = (Steady *)w->steady;
    Recorder *r = R(s);
    if (SLOT(w->first, switch_on) != Py_True)
        return PyObject_Vectorcall(w->original, args, nargsf, names);
    if (!is_here(D(s)))
        return PyObject_Vectorcall(w->slow, args, nargsf, names);
    if (w->busy)
        return PyObject_Vectorcall(w->original, args, nargsf, names);
    int code = learns(s, 0);
    if (code < 0 && failed(w) < 0)
        return NULL;
    w->busy = 1;
    PyObject *done = PyObject_Vectorcall(code == NOT_OURS ? w->slow : w->original, args, nargsf, names);
    w->busy = 0;
    if (code == OPEN && r->recording && r->graph != NULL && r->graph != Py_None) {
        PyObject *error = done == NULL ? taken() : NULL;
        if (nodes(r, &r->graph_then) < 0 && failed(w) < 0) {
            Py_CLEAR(done);
            Py_XDECREF(error);
        } else if (error != NULL)
            raise_again(error);
    }
    return done;
}

/* What a hook does before an optimizer's step (`update_call`) and after it. `first`: its switch. */
static PyObject *around_update(Instead *w, PyObject *const *args, size_t nargsf, int after)
{
    if (SLOT(w->first, switch_on) == Py_True) {
        int code = after ? updated((Steady *)w->steady) : learns((Steady *)w->steady, 1);
        if (code == NOT_OURS)
            return PyObject_Vectorcall(w->slow, args, nargsf, NULL);
        if (code < 0 && failed(w) < 0)
            return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *update_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *Py_UNUSED(names))
{
    return around_update((Instead *)self, args, nargsf, 0);
}

static PyObject *updated_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *Py_UNUSED(names))
{
    return around_update((Instead *)self, args, nargsf, 1);
}

/* The model is called. `first`: the hook. */
static PyObject *forward_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *names)
{
    Instead *w = (Instead *)self;
    if (forward_begins((Steady *)w->steady, (Forward *)w->first) == NOT_OURS)
        return PyObject_Vectorcall(w->slow, args, nargsf, names);
    Py_RETURN_NONE;
}

static const struct { const char *what; vectorcallfunc call; } kinds[] = {
    {"next", next_call}, {"index", index_call}, {"fetch", fetch_call}, {"backward", backward_call},
    {"update", update_call}, {"updated", updated_call}, {"forward", forward_call}};

static PyObject *Instead_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
    PyObject *steady, *original, *slow, *first, *second, *fail;
    const char *what;
    if (!PyArg_ParseTuple(args, "sO!OOOOO", &what, &Steady_type, &steady, &original, &slow, &first, &second, &fail))
        return NULL;
    vectorcallfunc call = NULL;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(what, kinds[i].what) == 0)
            call = kinds[i].call;
    int switched = call == backward_call || call == update_call || call == updated_call;
    PyTypeObject *needs = call == fetch_call ? &FetchTimer_type : call == forward_call ? &Forward_type : NULL;
    if (call == NULL || (switched && !IS(first, switch)) || (needs != NULL && !PyObject_TypeCheck(first, needs)))
        return PyErr_Format(PyExc_TypeError, "nothing stands in for %s with this", what);
    Instead *w = (Instead *)type->tp_alloc(type, 0);
    if (w != NULL) {
        w->call = call;
        w->steady = Py_NewRef(steady);
        w->original = Py_NewRef(original);
        w->slow = Py_NewRef(slow);
        w->first = Py_NewRef(first);
        w->second = Py_NewRef(second);
        w->fail = Py_NewRef(fail);
    }
    return (PyObject *)w;
}

static PyObject *Instead_bound(PyObject *self, PyObject *to, PyObject *Py_UNUSED(type))
{
    return to == NULL || to == Py_None ? Py_NewRef(self) : PyMethod_New(self, to);
}

/* By its name, as a function of Python's. */
static PyObject *Instead_reduce(PyObject *self, PyObject *Py_UNUSED(none))
{
    return PyObject_GetAttrString(self, "__qualname__");
}

static PyMethodDef Instead_methods[] = {{"__reduce__", Instead_reduce, METH_NOARGS, NULL}, {0}};
static PyGetSetDef Instead_space[] = {{"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL}, {0}};
static PyTypeObject Instead_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "whyidle._native.Instead", .tp_basicsize = sizeof(Instead),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR,
    .tp_new = Instead_new, .tp_traverse = Instead_traverse, .tp_dealloc = Instead_dealloc,
    .tp_call = PyVectorcall_Call, .tp_vectorcall_offset = offsetof(Instead, call), .tp_descr_get = Instead_bound,
    .tp_dictoffset = offsetof(Instead, space), .tp_getset = Instead_space, .tp_methods = Instead_methods};

/* lay_out(numbers, types, things): see native.py. */
static int offset_of(PyObject *type, const char *name, Py_ssize_t *to)
{
    PyObject *found = type == NULL ? NULL : PyObject_GetAttrString(type, name);
    int right = found != NULL && Py_IS_TYPE(found, &PyMemberDescr_Type) &&
                ((PyMemberDescrObject *)found)->d_member->type == T_OBJECT_EX;
    if (right)
        *to = ((PyMemberDescrObject *)found)->d_member->offset;
    else
        PyErr_Format(PyExc_TypeError, "%s is no slot", name);
    Py_XDECREF(found);
    return right ? 0 : -1;
}

static PyObject *lay_out(PyObject *Py_UNUSED(self), PyObject *args)
{
    PyObject *numbers, *types, *things;
    if (!PyArg_ParseTuple(args, "O!O!O!", &PyDict_Type, &numbers, &PyDict_Type, &types, &PyDict_Type, &things))
        return NULL;
#define F(name) \
    if (PyDict_GetItemString(numbers, #name) == NULL || number(PyDict_GetItemString(numbers, #name), &at.name) < 0) \
        return PyErr_Format(PyExc_KeyError, #name);
    FIELDS(F)
#undef F
#define S(of, name) \
    if (offset_of(PyDict_GetItemString(types, #of), #name, &slot.of##_##name) < 0) \
        return NULL;
    SLOTS(S)
#undef S
#define T(of) put((PyObject **)&type_##of, PyDict_GetItemString(types, #of));
    T(pass) T(role) T(pace) T(switch) T(known)
#undef T
#define G(name) \
    if (PyDict_GetItemString(things, #name) == NULL) \
        return PyErr_Format(PyExc_KeyError, #name); \
    put(&name, PyDict_GetItemString(things, #name));
    G(monotonic) G(opens) G(trains) G(tensor) G(modes) G(not_delivered)
#undef G
    PyObject *row = PyDict_GetItemString(things, "blank");
    Py_buffer view;
    if (row == NULL || PyObject_GetBuffer(row, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    int fits = at.words <= WORDS && view.len == 8 * at.words;
    if (fits)
        memcpy(blank, view.buf, view.len);
    PyBuffer_Release(&view);
    if (!fits)
        return PyErr_Format(PyExc_ValueError, "a step has %lld words", at.words);
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {{"lay_out", lay_out, METH_VARARGS, NULL}, {0}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, .m_name = "whyidle._native", .m_size = -1, .m_methods = functions};

PyMODINIT_FUNC PyInit__native(void)
{
    static PyTypeObject *types[] = {&Appender_type, &Recorder_type, &Detector_type,
                                    &Forward_type, &FetchTimer_type,  &Steady_type, &Instead_type};
    Recorder_type.tp_methods = Recorder_methods;
    Forward_type.tp_methods = Forward_methods;
    PyObject *made = PyModule_Create(&module);
    for (size_t i = 0; made != NULL && i < sizeof types / sizeof *types; i++)
        if (PyModule_AddType(made, types[i]) < 0)
            Py_CLEAR(made);
#define N(name, text) if ((name = PyUnicode_InternFromString(text)) == NULL) Py_CLEAR(made);
    N(s_ready, "ready") N(s_capacity, "capacity") N(s_popleft, "popleft") N(s_append, "append") N(s_shape, "shape")
    N(s_dtype, "dtype") N(s_loader, "loader") N(s_order, "order") N(s_rcvd, "_rcvd_idx")
    N(s_plan, "_plans") N(s_room, "_room") N(s_collected, "on_collections")
    zero = PyLong_FromLong(0);
    return made;
}
