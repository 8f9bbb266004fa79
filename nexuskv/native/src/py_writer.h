/* Owns Writer, the daemon's side. The GIL makes it one thread; only recover() lets it go. */

typedef struct py_writer {
  PyObject_HEAD nx_writer *writer;
  uint64_t touch_cursor;
  void *memory[2];
  size_t bytes[2];
  py_guard guard; /* of the touch object */
} py_writer;

static PyTypeObject *py_writer_type;

/* ---- Writer: arguments and results ---- */

static PyObject *py_writer_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  static char *names[] = {"index_fd", "touch_fd", NULL};
  int fds[2];
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "ii", names, &fds[0], &fds[1])) return NULL;
  py_writer *self = (py_writer *)type->tp_alloc(type, 0);
  if (self == NULL) return NULL;
  int code = NX_OK;
  for (int i = 0; i < 2 && code == NX_OK; i++)
    if (i == 0 || fds[i] >= 0) code = nx_map(fds[i], 1, &self->memory[i], &self->bytes[i]);
  if (code == NX_OK && self->memory[1] != NULL)
    code = py_guard_begin(&self->guard, self->memory[1], self->bytes[1]);
  if (code == NX_OK)
    code = nx_writer_open(&self->writer, self->memory[0], self->bytes[0], self->memory[1], self->bytes[1]);
  if (code == NX_OK) return (PyObject *)self;
  py_raise(code);
  Py_DECREF(self);
  return NULL;
}

static void py_writer_dealloc(py_writer *self) {
  PyTypeObject *type = Py_TYPE(self);
  nx_writer_close(self->writer);
  py_guard_end(&self->guard);
  for (int i = 0; i < 2; i++) nx_unmap(self->memory[i], self->bytes[i]);
  type->tp_free(self);
  Py_DECREF(type);
}

/* An absent parent is b"". */
static bool py_key_bytes(PyObject *value, uint8_t key[NX_KEY_BYTES], bool may_be_absent) {
  if (PyBytes_Check(value) && PyBytes_GET_SIZE(value) == NX_KEY_BYTES) {
    memcpy(key, PyBytes_AS_STRING(value), NX_KEY_BYTES);
    return true;
  }
  if (may_be_absent && PyBytes_Check(value) && PyBytes_GET_SIZE(value) == 0) return true;
  PyErr_SetString(PyExc_ValueError, "a key is bytes of length 32");
  return false;
}

/* (key, parent, segment, offset, length, tokens, owner, checksum, tick) */
static bool py_record(PyObject *tuple, nx_record *record) {
  if (!PyTuple_Check(tuple) || PyTuple_GET_SIZE(tuple) != 9) {
    PyErr_SetString(PyExc_TypeError, "a record is a tuple of 9: see _core.pyi");
    return false;
  }
  memset(record, 0, sizeof *record);
#define PY_FIELD(i) PyTuple_GET_ITEM(tuple, i)
  return py_key_bytes(PY_FIELD(0), record->key, false) && py_key_bytes(PY_FIELD(1), record->parent, true) &&
         py_u32(PY_FIELD(2), &record->segment) && py_u64(PY_FIELD(3), &record->offset) &&
         py_u32(PY_FIELD(4), &record->length) && py_u32(PY_FIELD(5), &record->tokens) &&
         py_u64(PY_FIELD(6), &record->owner) && py_u64(PY_FIELD(7), &record->checksum) &&
         py_u64(PY_FIELD(8), &record->tick);
#undef PY_FIELD
}

static PyObject *py_record_tuple(const nx_record *record) {
  static const uint8_t nobody[NX_KEY_BYTES];
  Py_ssize_t parent_bytes = memcmp(record->parent, nobody, NX_KEY_BYTES) == 0 ? 0 : NX_KEY_BYTES;
  return Py_BuildValue("y#y#IKIIKKKIi", record->key, (Py_ssize_t)NX_KEY_BYTES, record->parent, parent_bytes,
                       record->segment, (unsigned long long)record->offset, record->length, record->tokens,
                       (unsigned long long)record->owner, (unsigned long long)record->checksum,
                       (unsigned long long)record->tick, record->bucket, record->status);
}

/* NULL with an error set; the caller frees. `fast` is a list or a tuple. */
static uint32_t *py_buckets(PyObject *fast) {
  Py_ssize_t n = PySequence_Fast_GET_SIZE(fast);
  uint32_t *buckets = PyMem_New(uint32_t, n + 1);
  if (buckets == NULL) PyErr_NoMemory();
  for (Py_ssize_t i = 0; buckets != NULL && i < n; i++)
    if (!py_u32(PySequence_Fast_GET_ITEM(fast, i), &buckets[i])) {
      PyMem_Free(buckets);
      return NULL;
    }
  return buckets;
}

/* ---- Writer: the steps of an entry ---- */

typedef int64_t (*py_step)(nx_writer *, const uint32_t *, size_t);

static PyObject *py_places(const nx_record *records, Py_ssize_t n) {
  PyObject *list = PyList_New(n);
  for (Py_ssize_t i = 0; list != NULL && i < n; i++) {
    PyObject *place =
        PyLong_FromLongLong(records[i].status == NX_OK ? (long long)records[i].bucket : records[i].status);
    if (place == NULL) Py_CLEAR(list);
    else PyList_SET_ITEM(list, i, place);
  }
  return list;
}

static PyObject *py_writer_publish(py_writer *self, PyObject *source) {
  PyObject *fast = PySequence_Fast(source, "records must be a list"), *places = NULL;
  if (fast == NULL) return NULL;
  Py_ssize_t n = PySequence_Fast_GET_SIZE(fast), i = 0;
  nx_record *records = PyMem_New(nx_record, n + 1);
  if (records == NULL) PyErr_NoMemory();
  while (records != NULL && i < n && py_record(PySequence_Fast_GET_ITEM(fast, i), &records[i])) i++;
  if (records != NULL && i == n) {
    nx_publish(self->writer, records, (size_t)n);
    places = py_places(records, n);
  }
  PyMem_Free(records);
  Py_DECREF(fast);
  return places;
}

/* In columns: a tuple for each page would cost more than all that is done with it. `like` has what they share. */
static bool py_columns(PyObject *const columns[4], uint64_t slot_bytes, const nx_record *like, nx_record *records) {
  for (Py_ssize_t i = 0, n = PyList_GET_SIZE(columns[0]); i < n; i++) {
    uint64_t handle;
    records[i] = *like;
    if (!py_key_bytes(PyList_GET_ITEM(columns[0], i), records[i].key, false) ||
        !py_key_bytes(PyList_GET_ITEM(columns[1], i), records[i].parent, true) ||
        !py_u64(PyList_GET_ITEM(columns[2], i), &handle) ||
        !py_u32(PyList_GET_ITEM(columns[3], i), &records[i].tokens))
      return false;
    records[i].segment = (uint32_t)(handle >> 32);
    records[i].offset = (handle & UINT32_MAX) * slot_bytes;
  }
  return true;
}

static PyObject *py_writer_reserve(py_writer *self, PyObject *args) {
  PyObject *columns[4], *places = NULL;
  nx_record like = {0};
  unsigned long long slot_bytes, owner;
  if (!PyArg_ParseTuple(args, "O!O!O!O!KIK", &PyList_Type, &columns[0], &PyList_Type, &columns[1], &PyList_Type,
                        &columns[2], &PyList_Type, &columns[3], &slot_bytes, &like.length, &owner))
    return NULL;
  like.owner = owner;
  Py_ssize_t n = PyList_GET_SIZE(columns[0]);
  for (int i = 1; i < 4; i++)
    if (PyList_GET_SIZE(columns[i]) != n) return PyErr_Format(PyExc_ValueError, "columns of different lengths");
  nx_record *records = PyMem_New(nx_record, n + 1);
  if (records == NULL) return PyErr_NoMemory();
  if (py_columns(columns, slot_bytes, &like, records)) {
    nx_reserve(self->writer, records, (size_t)n);
    places = py_places(records, n);
  }
  PyMem_Free(records);
  return places;
}

static PyObject *py_writer_step(py_writer *self, PyObject *source, py_step step) {
  PyObject *fast = PySequence_Fast(source, "buckets must be a list");
  uint32_t *buckets = fast == NULL ? NULL : py_buckets(fast);
  int64_t done = buckets == NULL ? 0 : step(self->writer, buckets, (size_t)PySequence_Fast_GET_SIZE(fast));
  PyObject *result = buckets == NULL ? NULL : PyLong_FromLongLong(done);
  PyMem_Free(buckets);
  Py_XDECREF(fast);
  return result;
}

static PyObject *py_writer_abort(py_writer *self, PyObject *buckets) {
  return py_writer_step(self, buckets, nx_abort);
}

static PyObject *py_writer_retire(py_writer *self, PyObject *buckets) {
  return py_writer_step(self, buckets, nx_retire);
}

static PyObject *py_writer_revive(py_writer *self, PyObject *buckets) {
  return py_writer_step(self, buckets, nx_revive);
}

static int64_t py_commit_plain(nx_writer *writer, const uint32_t *buckets, size_t n) {
  return nx_commit(writer, buckets, NULL, n);
}

static PyObject *py_commit_checked(py_writer *self, PyObject *buckets, PyObject *checksums) {
  Py_ssize_t n = PySequence_Fast_GET_SIZE(buckets), i = 0;
  uint32_t *places = py_buckets(buckets);
  uint64_t *sums = PyMem_New(uint64_t, n + 1);
  if (sums == NULL) PyErr_NoMemory();
  while (places != NULL && sums != NULL && i < n && py_u64(PySequence_Fast_GET_ITEM(checksums, i), &sums[i])) i++;
  PyObject *result = NULL;
  if (places != NULL && sums != NULL && i == n)
    result = PyLong_FromLongLong(nx_commit(self->writer, places, sums, (size_t)n));
  PyMem_Free(places);
  PyMem_Free(sums);
  return result;
}

static PyObject *py_writer_commit(py_writer *self, PyObject *args) {
  PyObject *buckets, *checksums = Py_None;
  if (!PyArg_ParseTuple(args, "O|O", &buckets, &checksums)) return NULL;
  if (checksums == Py_None) return py_writer_step(self, buckets, py_commit_plain);
  PyObject *fast = PySequence_Fast(buckets, "buckets must be a list"),
           *sums = PySequence_Fast(checksums, "checksums must be a list");
  PyObject *result = NULL;
  if (fast != NULL && sums != NULL && PySequence_Fast_GET_SIZE(fast) != PySequence_Fast_GET_SIZE(sums))
    PyErr_SetString(PyExc_ValueError, "one checksum a bucket");
  else if (fast != NULL && sums != NULL) result = py_commit_checked(self, fast, sums);
  Py_XDECREF(fast);
  Py_XDECREF(sums);
  return result;
}

static PyObject *py_writer_reclaim(py_writer *self, PyObject *args) {
  PyObject *buckets, *arrays;
  if (!PyArg_ParseTuple(args, "OO", &buckets, &arrays)) return NULL;
  PyObject *fast = PySequence_Fast(buckets, "buckets must be a list"),
           *others = PySequence_Fast(arrays, "pin arrays must be a list");
  uint32_t *places = fast == NULL ? NULL : py_buckets(fast), *freed = NULL;
  nx_pins **pins = others == NULL ? NULL : py_pins_of(others);
  PyObject *result = NULL;
  if (places != NULL && pins != NULL) {
    size_t n = (size_t)PySequence_Fast_GET_SIZE(fast);
    freed = PyMem_New(uint32_t, n + 1);
    if (freed == NULL) PyErr_NoMemory();
    else
      result = py_u32_list(freed, (Py_ssize_t)nx_reclaim(self->writer, places, n, pins,
                                                         (size_t)PySequence_Fast_GET_SIZE(others), freed));
  }
  PyMem_Free(freed);
  PyMem_Free(pins);
  PyMem_Free(places);
  Py_XDECREF(fast);
  Py_XDECREF(others);
  return result;
}

/* ---- Writer: reading back ---- */

static PyObject *py_writer_find(py_writer *self, PyObject *key) {
  uint8_t bytes[NX_KEY_BYTES];
  if (!py_key_bytes(key, bytes, false)) return NULL;
  int64_t bucket = nx_find(self->writer, bytes);
  if (bucket < 0) Py_RETURN_NONE;
  return PyLong_FromLongLong(bucket);
}

static PyObject *py_writer_read(py_writer *self, PyObject *arg) {
  uint32_t bucket;
  nx_record record;
  if (!py_u32(arg, &bucket)) return NULL;
  int code = nx_read(self->writer, bucket, &record);
  return code == NX_OK ? py_record_tuple(&record) : py_raise(code);
}

#define PY_TOUCHED 4096

/* Everything since the last call; a page that is touched meanwhile may come twice or the next time. */
static PyObject *py_writer_touched(py_writer *self, PyObject *unused) {
  (void)unused;
  uint32_t buckets[PY_TOUCHED];
  PyObject *all = PyList_New(0);
  do {
    Py_ssize_t found = (Py_ssize_t)nx_touched(self->writer, &self->touch_cursor, buckets, PY_TOUCHED);
    PyObject *some = all == NULL ? NULL : py_u32_list(buckets, found);
    if (some == NULL || PyList_SetSlice(all, PyList_GET_SIZE(all), PyList_GET_SIZE(all), some) < 0) Py_CLEAR(all);
    Py_XDECREF(some);
  } while (all != NULL && self->touch_cursor != 0);
  return all;
}

static PyObject *py_writer_recover(py_writer *self, PyObject *unused) {
  (void)unused;
  nx_recovery found;
  int code;
  Py_BEGIN_ALLOW_THREADS code = nx_recover(self->writer, &found);
  Py_END_ALLOW_THREADS if (code != NX_OK) return py_raise(code);
  return Py_BuildValue("KKKKK", (unsigned long long)found.live, (unsigned long long)found.retiring,
                       (unsigned long long)found.writing, (unsigned long long)found.torn,
                       (unsigned long long)found.segments_dropped);
}

static PyObject *py_writer_entries(py_writer *self, PyObject *args) {
  unsigned long long start;
  Py_ssize_t limit;
  if (!PyArg_ParseTuple(args, "Kn", &start, &limit)) return NULL;
  if (limit <= 0) return PyErr_Format(PyExc_ValueError, "a limit of %zd entries", limit);
  nx_record *records = PyMem_New(nx_record, limit);
  if (records == NULL) return PyErr_NoMemory();
  uint64_t cursor = start;
  Py_ssize_t found = (Py_ssize_t)nx_entries(self->writer, &cursor, records, (size_t)limit);
  PyObject *list = PyList_New(found);
  for (Py_ssize_t i = 0; list != NULL && i < found; i++) {
    PyObject *tuple = py_record_tuple(&records[i]);
    if (tuple == NULL) Py_CLEAR(list);
    else PyList_SET_ITEM(list, i, tuple);
  }
  PyMem_Free(records);
  return list == NULL ? NULL : Py_BuildValue("KN", (unsigned long long)cursor, list);
}
