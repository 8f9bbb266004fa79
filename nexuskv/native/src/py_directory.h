/* Owns the rest of Writer: the segment directory, the header's fields, and the tables of both types. */

static PyObject *py_writer_add_segment(py_writer *self, PyObject *args) {
  nx_segment segment = {0};
  unsigned long long slot_bytes, page_bytes, segment_bytes;
  const char *digest;
  Py_ssize_t digest_bytes;
  if (!PyArg_ParseTuple(args, "IIIKKKy#", &segment.segment, &segment.arena, &segment.slot_count, &slot_bytes,
                        &page_bytes, &segment_bytes, &digest, &digest_bytes))
    return NULL;
  if (digest_bytes != (Py_ssize_t)sizeof segment.digest)
    return PyErr_Format(PyExc_ValueError, "a digest has 32 bytes");
  segment.slot_bytes = slot_bytes;
  segment.page_bytes = page_bytes;
  segment.segment_bytes = segment_bytes;
  memcpy(segment.digest, digest, sizeof segment.digest);
  int code = nx_segment_add(self->writer, &segment);
  return py_none_or_raise(code == NX_E_EXISTS ? NX_E_FULL : code);
}

static PyObject *py_writer_remove_segment(py_writer *self, PyObject *arg) {
  uint32_t number;
  if (!py_u32(arg, &number)) return NULL;
  return py_none_or_raise(nx_segment_remove(self->writer, number) == NX_OK ? NX_OK : NX_E_ARGUMENT);
}

static PyObject *py_writer_segments(py_writer *self, PyObject *unused) {
  (void)unused;
  size_t limit = nx_writer_header(self->writer)->directory_capacity;
  nx_segment *rows = PyMem_New(nx_segment, limit);
  if (rows == NULL) return PyErr_NoMemory();
  int64_t found = nx_segments(self->writer, rows, limit);
  PyObject *list = PyList_New((Py_ssize_t)found);
  for (Py_ssize_t i = 0; list != NULL && i < found; i++) {
    PyObject *row = py_segment_tuple(&rows[i]);
    if (row == NULL) Py_CLEAR(list);
    else PyList_SET_ITEM(list, i, row);
  }
  PyMem_Free(rows);
  return list;
}

static PyObject *py_writer_set_epoch(py_writer *self, PyObject *arg) {
  uint64_t epoch;
  if (!py_u64(arg, &epoch)) return NULL;
  nx_set_epoch(self->writer, epoch);
  Py_RETURN_NONE;
}

static PyObject *py_writer_set_moved(py_writer *self, PyObject *unused) {
  (void)unused;
  nx_set_moved(self->writer);
  Py_RETURN_NONE;
}

/* The closure is the field's offset in the header. */
static PyObject *py_header_u64(py_writer *self, void *closure) {
  uint64_t value;
  memcpy(&value, (const char *)nx_writer_header(self->writer) + (uintptr_t)closure, sizeof value);
  return PyLong_FromUnsignedLongLong(value);
}

static PyObject *py_header_text(py_writer *self, void *closure) {
  const char *text = (const char *)nx_writer_header(self->writer) + (uintptr_t)closure;
  size_t room = (uintptr_t)closure == offsetof(nx_index_header, release) ? NX_NAME_BYTES / 2 : NX_NAME_BYTES;
  return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strnlen(text, room), "replace");
}

static PyObject *py_header_moved(py_writer *self, void *closure) {
  (void)closure;
  return PyBool_FromLong(nx_writer_header(self->writer)->moved != 0);
}

#define PY_HEADER(name, read, field, doc) \
  { name, (getter)(read), NULL, doc, (void *)offsetof(nx_index_header, field) }

static PyObject *py_writer_tie(py_writer *self, PyObject *args) {
  PyObject *source, *fast;
  unsigned long long word;
  if (!PyArg_ParseTuple(args, "OK", &source, &word)) return NULL;
  if ((fast = PySequence_Fast(source, "buckets must be a list")) == NULL) return NULL;
  uint32_t *buckets = py_buckets(fast);
  PyObject *result = NULL;
  if (buckets != NULL)
    result = PyLong_FromLongLong(nx_tie(self->writer, buckets, word, (size_t)PySequence_Fast_GET_SIZE(fast)));
  PyMem_Free(buckets);
  Py_DECREF(fast);
  return result;
}

static PyMethodDef py_writer_methods[] = {
    PY_METHOD("reserve", py_writer_reserve, METH_VARARGS, "Writes entries as WRITING; a bucket or a code < 0 each."),
    PY_METHOD("publish", py_writer_publish, METH_O, "Reserve and commit in one, of any records."),
    PY_METHOD("commit", py_writer_commit, METH_VARARGS, "WRITING -> LIVE; how many."),
    PY_METHOD("abort", py_writer_abort, METH_O, "WRITING -> gone; how many."),
    PY_METHOD("tie", py_writer_tie, METH_VARARGS, "Stores a word as `owner` of WRITING and LIVE ones; how many."),
    PY_METHOD("retire", py_writer_retire, METH_O, "LIVE -> RETIRING; how many."),
    PY_METHOD("revive", py_writer_revive, METH_O, "RETIRING -> LIVE; how many."),
    PY_METHOD("reclaim", py_writer_reclaim, METH_VARARGS, "Frees the retiring buckets that nobody pins; which."),
    PY_METHOD("find", py_writer_find, METH_O, "Bucket of a LIVE or WRITING key, or None."),
    PY_METHOD("read", py_writer_read, METH_O, "The record in a bucket."),
    PY_METHOD("touched", py_writer_touched, METH_NOARGS, "LIVE buckets that were used since the last call."),
    PY_METHOD("recover", py_writer_recover, METH_NOARGS, "Checks everything after a daemon died."),
    PY_METHOD("entries", py_writer_entries, METH_VARARGS, "Entries in use, from a cursor on."),
    PY_METHOD("add_segment", py_writer_add_segment, METH_VARARGS, "Enters a segment into the directory."),
    PY_METHOD("remove_segment", py_writer_remove_segment, METH_O, "Takes a segment out of the directory."),
    PY_METHOD("segments", py_writer_segments, METH_NOARGS, "All segments of the directory."),
    PY_METHOD("set_epoch", py_writer_set_epoch, METH_O, "Says which daemon serves now."),
    PY_METHOD("set_moved", py_writer_set_moved, METH_NOARGS, "Sends every client away from this index."),
    PY_END};
static PyGetSetDef py_writer_getters[] = {
    PY_HEADER("index_id", py_header_u64, index_id, NULL),
    PY_HEADER("bucket_count", py_header_u64, bucket_count, NULL),
    PY_HEADER("max_entries", py_header_u64, max_entries, NULL),
    PY_HEADER("boot_epoch", py_header_u64, boot_epoch, NULL),
    PY_HEADER("occupied", py_header_u64, occupied, "WRITING, LIVE and RETIRING entries."),
    PY_HEADER("live", py_header_u64, live, "LIVE entries."),
    PY_HEADER("tick", py_header_u64, tick, "Tick of the newest entry."),
    PY_HEADER("torn_dropped", py_header_u64, torn_dropped, "Torn entries that recoveries have dropped."),
    PY_HEADER("release", py_header_text, release, NULL),
    PY_HEADER("instance", py_header_text, instance, NULL),
    PY_HEADER("tenant", py_header_text, tenant, NULL),
    PY_GETTER("moved", py_header_moved, NULL),
    {NULL, NULL, NULL, NULL, NULL}};
static PyType_Slot py_writer_slots[] = {{Py_tp_new, py_writer_new},
                                        {Py_tp_dealloc, py_writer_dealloc},
                                        {Py_tp_methods, py_writer_methods},
                                        {Py_tp_getset, py_writer_getters},
                                        {Py_tp_doc, "The daemon's side of one index."},
                                        {0, NULL}};
static PyType_Spec py_writer_spec = {"nexuskv.native._core.Writer", sizeof(py_writer), 0, Py_TPFLAGS_DEFAULT,
                                     py_writer_slots};

static PyGetSetDef py_pin_array_getters[] = {
    PY_GETTER("held", py_pin_array_held, "Words in use."),
    PY_GETTER("counts", py_pin_array_counts, "(hits, misses, refused for want of a word): the client's word."),
    {NULL, NULL, NULL, NULL, NULL}};
static PyMethodDef py_pin_array_methods[] = {
    PY_METHOD("buckets", py_pin_array_buckets, METH_NOARGS, "Buckets that the words name just now."), PY_END};
static PyType_Slot py_pin_array_slots[] = {{Py_tp_new, py_pin_array_new},
                                           {Py_tp_methods, py_pin_array_methods},
                                           {Py_tp_dealloc, py_pin_array_dealloc},
                                           {Py_tp_getset, py_pin_array_getters},
                                           {Py_tp_doc, "The daemon's view of one client's pins."},
                                           {0, NULL}};
static PyType_Spec py_pin_array_spec = {"nexuskv.native._core.PinArray", sizeof(py_pin_array), 0, Py_TPFLAGS_DEFAULT,
                                        py_pin_array_slots};

static int py_add_writer(PyObject *module) {
  py_pin_array_type = py_add_type(module, &py_pin_array_spec);
  py_writer_type = py_add_type(module, &py_writer_spec);
  return py_pin_array_type == NULL || py_writer_type == NULL ? -1 : 0;
}
