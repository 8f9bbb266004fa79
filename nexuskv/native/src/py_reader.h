/* Owns Reader and Pins. Pins keep their Reader alive, and with it the mappings and the owner's lock. */

typedef struct py_reader {
  PyObject_HEAD nx_reader *reader;
} py_reader;

typedef struct py_pins {
  PyObject_VAR_HEAD py_reader *owner;
  Py_ssize_t count; /* -1 = released */
  nx_handle handles[1];
} py_pins;

static PyTypeObject *py_reader_type, *py_pins_type;

static PyObject *py_reader_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  static char *names[] = {"index_fd", "touch_fd", "pin_fd", NULL};
  int index_fd, touch_fd, pin_fd;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "iii", names, &index_fd, &touch_fd, &pin_fd)) return NULL;
  py_reader *self = (py_reader *)type->tp_alloc(type, 0);
  if (self == NULL) return NULL;
  int code = nx_attach(&self->reader, index_fd, touch_fd, pin_fd);
  if (code == NX_OK) return (PyObject *)self;
  py_raise(code);
  Py_DECREF(self);
  return NULL;
}

static void py_reader_dealloc(py_reader *self) {
  PyTypeObject *type = Py_TYPE(self);
  nx_detach(self->reader);
  type->tp_free(self);
  Py_DECREF(type);
}

static PyObject *py_reader_lookup(py_reader *self, PyObject *source) {
  py_keys keys;
  int64_t resident = -1;
  bool valid = py_keys_open(&keys, source);
  if (valid && keys.n >= NX_PY_BATCH) {
    Py_BEGIN_ALLOW_THREADS resident = nx_lookup(self->reader, keys.bytes, (size_t)keys.n);
    Py_END_ALLOW_THREADS
  } else if (valid) {
    resident = nx_lookup(self->reader, keys.bytes, (size_t)keys.n);
  }
  py_keys_close(&keys);
  if (!valid) return NULL;
  return resident < 0 ? py_raise((int)resident) : PyLong_FromLongLong(resident);
}

static PyObject *py_reader_status(py_reader *self, PyObject *source) {
  py_keys keys;
  PyObject *presence = NULL;
  int code = NX_OK;
  if (py_keys_open(&keys, source) && (presence = PyBytes_FromStringAndSize(NULL, keys.n)) != NULL) {
    uint8_t *out = (uint8_t *)PyBytes_AS_STRING(presence);
    Py_BEGIN_ALLOW_THREADS code = nx_status(self->reader, keys.bytes, (size_t)keys.n, out);
    Py_END_ALLOW_THREADS
  }
  py_keys_close(&keys);
  if (code == NX_OK) return presence;
  Py_DECREF(presence);
  return py_raise(code);
}

static py_pins *py_pins_new(py_reader *owner, Py_ssize_t room) {
  py_pins *pins = PyObject_NewVar(py_pins, py_pins_type, room);
  if (pins == NULL) return NULL;
  Py_INCREF(owner);
  pins->owner = owner;
  pins->count = 0;
  return pins;
}

/* A long list of keys with a short run should not keep its room for as long as the hit is open. */
static py_pins *py_pins_shrunk(py_pins *pins) {
  if (Py_SIZE(pins) < 128 || pins->count > Py_SIZE(pins) / 2) return pins;
  py_pins *smaller = py_pins_new(pins->owner, pins->count);
  if (smaller == NULL) {
    PyErr_Clear();
    return pins;
  }
  memcpy(smaller->handles, pins->handles, sizeof(nx_handle) * (size_t)pins->count);
  smaller->count = pins->count;
  pins->count = -1;
  Py_DECREF(pins);
  return smaller;
}

static PyObject *py_reader_pin(py_reader *self, PyObject *source) {
  py_keys keys;
  py_pins *pins = NULL;
  int64_t pinned = 0;
  if (py_keys_open(&keys, source) && (pins = py_pins_new(self, keys.n)) != NULL) {
    if (keys.n >= NX_PY_BATCH) {
      Py_BEGIN_ALLOW_THREADS pinned = nx_pin(self->reader, keys.bytes, (size_t)keys.n, pins->handles);
      Py_END_ALLOW_THREADS
    } else {
      pinned = nx_pin(self->reader, keys.bytes, (size_t)keys.n, pins->handles);
    }
    if (pinned >= 0) pins->count = (Py_ssize_t)pinned;
  }
  py_keys_close(&keys);
  if (pins == NULL) return NULL;
  if (pinned >= 0) return (PyObject *)py_pins_shrunk(pins);
  Py_DECREF(pins);
  return py_raise((int)pinned);
}

static PyObject *py_reader_where(py_reader *self, PyObject *key) {
  uint32_t segment;
  if (!PyBytes_Check(key) || PyBytes_GET_SIZE(key) != NX_KEY_BYTES)
    return PyErr_Format(PyExc_ValueError, "a key is bytes of length 32");
  int code = nx_where(self->reader, PyBytes_AS_STRING(key), &segment);
  if (code == NX_E_STALE) Py_RETURN_NONE;
  return code < 0 ? py_raise(code) : PyLong_FromUnsignedLong(segment);
}

static PyObject *py_segment_tuple(const nx_segment *segment) {
  return Py_BuildValue("IIIKKKy#", segment->segment, segment->arena, segment->slot_count,
                       (unsigned long long)segment->slot_bytes, (unsigned long long)segment->page_bytes,
                       (unsigned long long)segment->segment_bytes, segment->digest,
                       (Py_ssize_t)sizeof segment->digest);
}

static PyObject *py_reader_segment(py_reader *self, PyObject *arg) {
  uint32_t number;
  nx_segment segment;
  if (!py_u32(arg, &number)) return NULL;
  if (nx_find_segment(self->reader, number, &segment) != NX_OK) Py_RETURN_NONE;
  return py_segment_tuple(&segment);
}

static PyObject *py_reader_epoch(py_reader *self, void *closure) {
  (void)closure;
  return PyLong_FromUnsignedLongLong(nx_epoch(self->reader));
}

static PyObject *py_reader_session(py_reader *self, void *closure) {
  (void)closure;
  return PyLong_FromUnsignedLongLong(nx_session(self->reader));
}

/* ---- Pins ---- */

static int py_pins_end(py_pins *self, Py_ssize_t from) {
  if (self->count <= from) return NX_OK;
  int code = nx_unpin(self->owner->reader, self->handles + from, (size_t)(self->count - from));
  self->count = from;
  return code == NX_E_FORKED ? NX_OK : code; /* a child of fork lets go of what was never its own */
}

/* Whoever forgets to release keeps pages from being evicted for as long as the object happens to live. */
static void py_pins_warn(void) {
  PyObject *kind, *value, *trace;
  PyErr_Fetch(&kind, &value, &trace);
  if (PyErr_WarnEx(PyExc_ResourceWarning, "a hit was dropped without close(): use it in a with", 1) < 0)
    PyErr_WriteUnraisable(NULL);
  PyErr_Restore(kind, value, trace);
}

static void py_pins_dealloc(py_pins *self) {
  PyTypeObject *type = Py_TYPE(self);
  if (self->count > 0) py_pins_warn();
  py_pins_end(self, 0);
  Py_XDECREF(self->owner);
  PyObject_Free(self);
  Py_DECREF(type);
}

static bool py_pins_open(const py_pins *self) {
  if (self->count >= 0) return true;
  PyErr_SetString(py_error_closed, "this hit is closed, its pages may hold something else by now: match again");
  return false;
}

static Py_ssize_t py_pins_len(py_pins *self) { return self->count < 0 ? 0 : self->count; }

static PyObject *py_pins_item(py_pins *self, Py_ssize_t i) {
  if (!py_pins_open(self)) return NULL;
  if (i < 0 || i >= self->count) {
    PyErr_SetString(PyExc_IndexError, "no such page in this hit");
    return NULL;
  }
  const nx_handle *handle = &self->handles[i];
  return Py_BuildValue("IKII", handle->segment, (unsigned long long)handle->offset, handle->length, handle->tokens);
}

static PyObject *py_extent(const nx_handle *handle) {
  PyObject *extent = PyTuple_New(3);
  if (extent == NULL) return NULL;
  PyTuple_SET_ITEM(extent, 0, PyLong_FromUnsignedLong(handle->segment));
  PyTuple_SET_ITEM(extent, 1, PyLong_FromUnsignedLongLong(handle->offset));
  PyTuple_SET_ITEM(extent, 2, PyLong_FromUnsignedLong(handle->length));
  if (PyErr_Occurred()) Py_CLEAR(extent);
  return extent;
}

static PyObject *py_pins_extents(py_pins *self, PyObject *unused) {
  (void)unused;
  if (!py_pins_open(self)) return NULL;
  PyObject *list = PyList_New(self->count);
  for (Py_ssize_t i = 0; list != NULL && i < self->count; i++) {
    PyObject *extent = py_extent(&self->handles[i]);
    if (extent == NULL) Py_CLEAR(list);
    else PyList_SET_ITEM(list, i, extent);
  }
  return list;
}

static PyObject *py_pins_segments(py_pins *self, PyObject *unused) {
  (void)unused;
  if (!py_pins_open(self)) return NULL;
  PyObject *set = PySet_New(NULL);
  for (Py_ssize_t i = 0; set != NULL && i < self->count; i++) {
    if (i > 0 && self->handles[i].segment == self->handles[i - 1].segment) continue;
    PyObject *number = PyLong_FromUnsignedLong(self->handles[i].segment);
    if (number == NULL || PySet_Add(set, number) < 0) Py_CLEAR(set);
    Py_XDECREF(number);
  }
  return set;
}

static PyObject *py_pins_valid(py_pins *self, PyObject *unused) {
  (void)unused;
  if (!py_pins_open(self)) return NULL;
  int64_t valid = nx_validate(self->owner->reader, self->handles, (size_t)self->count);
  return valid < 0 ? py_raise((int)valid) : PyLong_FromLongLong(valid);
}

static PyObject *py_pins_truncate(py_pins *self, PyObject *arg) {
  Py_ssize_t keep = PyLong_AsSsize_t(arg);
  if (keep == -1 && PyErr_Occurred()) return NULL;
  if (keep < 0) return PyErr_Format(PyExc_ValueError, "cannot keep %zd pages", keep);
  return py_pins_open(self) ? py_none_or_raise(py_pins_end(self, keep)) : NULL;
}

static PyObject *py_pins_release(py_pins *self, PyObject *unused) {
  (void)unused;
  int code = py_pins_end(self, 0);
  self->count = -1;
  Py_CLEAR(self->owner); /* a released hit that is still referenced must not keep the owner's lock */
  return py_none_or_raise(code);
}

/* How many pages there are from the first on whose segment is no key of the dict. */
static PyObject *py_pins_unreadable(py_pins *self, PyObject *segments) {
  if (!PyDict_Check(segments)) return PyErr_Format(PyExc_TypeError, "segments must be a dict");
  if (!py_pins_open(self)) return NULL;
  Py_ssize_t i = 0;
  for (; i < self->count; i++) {
    if (i > 0 && self->handles[i].segment == self->handles[i - 1].segment) continue;
    PyObject *number = PyLong_FromUnsignedLong(self->handles[i].segment);
    int there = number == NULL ? -1 : PyDict_Contains(segments, number);
    Py_XDECREF(number);
    if (there < 0) return NULL;
    if (there == 0) break;
  }
  return PyLong_FromSsize_t(self->count - i);
}

static PyObject *py_pins_enter(PyObject *self, PyObject *unused) {
  (void)unused;
  return Py_NewRef(self);
}

static PyObject *py_pins_exit(py_pins *self, PyObject *const *args, Py_ssize_t n) {
  (void)args;
  (void)n;
  return py_pins_release(self, NULL);
}

static PyObject *py_pins_tokens(py_pins *self, void *closure) {
  (void)closure;
  uint64_t tokens = 0;
  for (Py_ssize_t i = 0; i < self->count; i++) tokens += self->handles[i].tokens;
  return PyLong_FromUnsignedLongLong(tokens);
}

static PyObject *py_pins_closed(py_pins *self, void *closure) {
  (void)closure;
  return PyBool_FromLong(self->count < 0);
}

/* ---- types ---- */

#define PY_METHOD(name, function, flags, doc) \
  { name, (PyCFunction)(void (*)(void))(function), flags, doc }
#define PY_GETTER(name, function, doc) \
  { name, (getter)(function), NULL, doc, NULL }
#define PY_END \
  { NULL, NULL, 0, NULL }

static PyMethodDef py_reader_methods[] = {
    PY_METHOD("lookup", py_reader_lookup, METH_O, "How many leading keys are resident; pins nothing."),
    PY_METHOD("status", py_reader_status, METH_O, "One presence byte a key."),
    PY_METHOD("where", py_reader_where, METH_O, "The segment of a resident page, or None; pins nothing."),
    PY_METHOD("pin", py_reader_pin, METH_O, "Pins the resident leading run."),
    PY_METHOD("segment", py_reader_segment, METH_O, "The directory's row of a segment, or None."), PY_END};
static PyGetSetDef py_reader_getters[] = {
    PY_GETTER("epoch", py_reader_epoch, "Boot epoch of the daemon that serves now; 0 once it has moved."),
    PY_GETTER("session", py_reader_session, "The session that the pin object was made for."),
    {NULL, NULL, NULL, NULL, NULL}};
static PyType_Slot py_reader_slots[] = {
    {Py_tp_new, py_reader_new},
    {Py_tp_dealloc, py_reader_dealloc},
    {Py_tp_methods, py_reader_methods},
    {Py_tp_getset, py_reader_getters},
    {Py_tp_doc, "One attachment to an index. Its calls may come from any thread."},
    {0, NULL}};
static PyType_Spec py_reader_spec = {"nexuskv.native._core.Reader", sizeof(py_reader), 0, Py_TPFLAGS_DEFAULT,
                                     py_reader_slots};

static PyMethodDef py_pins_methods[] = {
    PY_METHOD("extents", py_pins_extents, METH_NOARGS, "(segment, offset, length) of every page."),
    PY_METHOD("segments", py_pins_segments, METH_NOARGS, "The set of segments that the pages lie in."),
    PY_METHOD("unreadable", py_pins_unreadable, METH_O,
              "How many pages from the first on whose segment is no key of the dict."),
    PY_METHOD("valid", py_pins_valid, METH_NOARGS, "How many leading pins still hold."),
    PY_METHOD("truncate", py_pins_truncate, METH_O, "Releases all pages but the first so many."),
    PY_METHOD("release", py_pins_release, METH_NOARGS, "Ends all pins; a second time does nothing."),
    PY_METHOD("__enter__", py_pins_enter, METH_NOARGS, NULL),
    PY_METHOD("__exit__", py_pins_exit, METH_FASTCALL, NULL),
    PY_END};
static PyGetSetDef py_pins_getters[] = {PY_GETTER("tokens", py_pins_tokens, "Valid tokens of all pages."),
                                        PY_GETTER("closed", py_pins_closed, "Released?"),
                                        {NULL, NULL, NULL, NULL, NULL}};
static PyType_Slot py_pins_slots[] = {{Py_tp_dealloc, py_pins_dealloc},
                                      {Py_tp_methods, py_pins_methods},
                                      {Py_tp_getset, py_pins_getters},
                                      {Py_sq_length, py_pins_len},
                                      {Py_sq_item, py_pins_item},
                                      {Py_tp_doc, "Pinned pages: readable, and never overwritten, until released."},
                                      {0, NULL}};
static PyType_Spec py_pins_spec = {"nexuskv.native._core.Pins", offsetof(py_pins, handles), sizeof(nx_handle),
                                   Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, py_pins_slots};

static int py_add_reader(PyObject *module) {
  py_reader_type = py_add_type(module, &py_reader_spec);
  py_pins_type = py_add_type(module, &py_pins_spec);
  return py_reader_type == NULL || py_pins_type == NULL ? -1 : 0;
}
