/* Owns the copying of whole pages into slots, in one call and without the GIL. Knows nothing of who may write them.
 *
 * A page that is put is read again by another process, a device or another host, later than the caches of a CPU remember
 * it. A plain copy of it first reads the lines that it then overwrites, and throws out of the caches what is in use. So
 * large pages are stored past the caches, which on x86 also takes about two thirds of the time. */

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#define PY_STREAM_BYTES 16384 /* smaller pages may well be read while they are still in a cache */
#define PY_STREAM_AHEAD 4096  /* bytes of the source that are asked for before they are needed */

#if defined(__SSE2__)
/* `to` is aligned to 16: slots are, to 64. A prefetch past the end of the source is no access. */
static void py_stream(char *to, const char *from, size_t bytes) {
  size_t at = 0;
  for (; at + 64 <= bytes; at += 64) {
    _mm_prefetch(from + at + PY_STREAM_AHEAD, _MM_HINT_NTA);
    __m128i line[4];
    for (int i = 0; i < 4; i++) line[i] = _mm_loadu_si128((const __m128i *)(from + at + 16 * i));
    for (int i = 0; i < 4; i++) _mm_stream_si128((__m128i *)(to + at + 16 * i), line[i]);
  }
  memcpy(to + at, from + at, bytes - at);
}

/* Streamed stores are not ordered with others: the daemon is told of the pages only after this. */
static void py_streamed(void) { _mm_sfence(); }
#else
static void py_stream(char *to, const char *from, size_t bytes) { memcpy(to, from, bytes); }
static void py_streamed(void) {}
#endif

/* Where pages go: slot i of a segment begins at i * slot_bytes of its memory. */
typedef struct py_slots {
  Py_ssize_t slot_bytes, page_bytes;
} py_slots;

/* One page: its place and its source, while the views of both are held. */
typedef struct py_page_copy {
  Py_buffer segment; /* empty when it is that of the page before */
  char *to;
  Py_buffer from;
} py_page_copy;

static void py_copy_done(py_page_copy *copy) {
  PyBuffer_Release(&copy->from);
  PyBuffer_Release(&copy->segment);
}

/* Where a slot begins, in the memory of its segment; NULL with an error set. */
static char *py_slot(const py_slots *slots, const Py_buffer *segment, PyObject *handle) {
  uint64_t slot;
  if (!py_u64(handle, &slot)) return NULL;
  slot &= UINT32_MAX;
  if (slot < (uint64_t)(segment->len / slots->slot_bytes))
    return (char *)segment->buf + (Py_ssize_t)slot * slots->slot_bytes;
  PyErr_Format(PyExc_IndexError, "there is no slot %llu here", (unsigned long long)slot);
  return NULL;
}

/* Streamed stores need the alignment that a mapping has; numpy may make an array anywhere. */
static bool py_segment(PyObject *memory, Py_buffer *segment) {
  if (PyObject_GetBuffer(memory, segment, PyBUF_WRITABLE) < 0) return false;
  if ((uintptr_t)segment->buf % 64 == 0) return true;
  PyErr_SetString(PyExc_ValueError, "a segment begins at a multiple of 64");
  PyBuffer_Release(segment);
  return false;
}

static bool py_copy_from(const py_slots *slots, PyObject *source, Py_ssize_t position, py_page_copy *copy) {
  if (PyObject_GetBuffer(source, &copy->from, PyBUF_SIMPLE) < 0) return false;
  if (copy->from.len == slots->page_bytes) return true;
  PyErr_Format(PyExc_ValueError, "the source of page %zd has %zd bytes, a page has %zd", position, copy->from.len,
               slots->page_bytes);
  PyBuffer_Release(&copy->from);
  return false;
}

/* One page: `segment` is the view of its memory that is held already, NULL if there is none. */
static bool py_prepare_one(const py_slots *slots, const Py_buffer *segment, PyObject *memory, PyObject *handle,
                           PyObject *source, Py_ssize_t position, py_page_copy *copy) {
  copy->segment = (Py_buffer){0};
  if (segment == NULL && !py_segment(memory, &copy->segment)) return false;
  copy->to = py_slot(slots, segment == NULL ? &copy->segment : segment, handle);
  if (copy->to != NULL && py_copy_from(slots, source, position, copy)) return true;
  PyBuffer_Release(&copy->segment);
  return false;
}

/* How many of n are prepared; fewer with an error set. Pages of one segment come in runs, which share a view of it. */
static Py_ssize_t py_prepare(const py_slots *slots, PyObject *memories, PyObject *handles, PyObject *positions,
                             PyObject *sources, py_page_copy *copies, Py_ssize_t n) {
  const Py_buffer *held = NULL;
  for (Py_ssize_t i = 0; i < n; i++) {
    Py_ssize_t position = PyLong_AsSsize_t(PyList_GET_ITEM(positions, i));
    if (position < 0) {
      if (!PyErr_Occurred()) PyErr_SetString(PyExc_IndexError, "a position is counted from 0");
      return i;
    }
    PyObject *source = PySequence_GetItem(sources, position), *memory = PyList_GET_ITEM(memories, i);
    if (source == NULL) return i;
    if (held != NULL && held->obj != memory) held = NULL;
    bool ready = py_prepare_one(slots, held, memory, PyList_GET_ITEM(handles, i), source, position, &copies[i]);
    Py_DECREF(source); /* its buffer is held */
    if (!ready) return i;
    if (held == NULL) held = &copies[i].segment;
  }
  return n;
}

static void py_copy_all(const py_page_copy *copies, Py_ssize_t n, size_t bytes) {
  Py_BEGIN_ALLOW_THREADS;
  if (bytes >= PY_STREAM_BYTES) {
    for (Py_ssize_t i = 0; i < n; i++) py_stream(copies[i].to, copies[i].from.buf, bytes);
    py_streamed();
  } else {
    for (Py_ssize_t i = 0; i < n; i++) memcpy(copies[i].to, copies[i].from.buf, bytes);
  }
  Py_END_ALLOW_THREADS;
}

/* Nothing is copied unless everything can be. */
static PyObject *py_fill(const py_slots *slots, PyObject *memories, PyObject *handles, PyObject *positions,
                         PyObject *sources) {
  if (slots->page_bytes <= 0 || slots->page_bytes > slots->slot_bytes || slots->slot_bytes % 64 != 0)
    return PyErr_Format(PyExc_ValueError, "pages of %zd bytes in slots of %zd", slots->page_bytes, slots->slot_bytes);
  Py_ssize_t n = PyList_GET_SIZE(handles);
  if (PyList_GET_SIZE(positions) != n || PyList_GET_SIZE(memories) != n)
    return PyErr_Format(PyExc_ValueError, "one segment and one position a slot");
  py_page_copy *copies = PyMem_New(py_page_copy, n + 1);
  if (copies == NULL) return PyErr_NoMemory();
  Py_ssize_t ready = py_prepare(slots, memories, handles, positions, sources, copies, n);
  if (ready == n) py_copy_all(copies, n, (size_t)slots->page_bytes);
  for (Py_ssize_t i = 0; i < ready; i++) py_copy_done(&copies[i]);
  PyMem_Free(copies);
  if (ready < n) return NULL;
  Py_RETURN_NONE;
}

static PyObject *core_fill(PyObject *module, PyObject *args) {
  (void)module;
  py_slots slots;
  PyObject *memories, *handles, *positions, *sources;
  if (!PyArg_ParseTuple(args, "nnO!O!O!O", &slots.slot_bytes, &slots.page_bytes, &PyList_Type, &memories, &PyList_Type,
                        &handles, &PyList_Type, &positions, &sources))
    return NULL;
  return py_fill(&slots, memories, handles, positions, sources);
}
