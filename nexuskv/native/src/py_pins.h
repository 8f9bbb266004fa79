/* Owns PinArray, by which the daemon sees what one client holds. Its words are that client's: read, never believed. */

typedef struct py_pin_array {
  PyObject_HEAD nx_pins *pins;
  void *memory;
  size_t bytes;
  py_guard guard;
} py_pin_array;

static PyTypeObject *py_pin_array_type;

static PyObject *py_pin_array_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  static char *names[] = {"fd", NULL};
  int fd;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "i", names, &fd)) return NULL;
  py_pin_array *self = (py_pin_array *)type->tp_alloc(type, 0);
  if (self == NULL) return NULL;
  int code = nx_map(fd, 0, &self->memory, &self->bytes);
  if (code == NX_OK) code = py_guard_begin(&self->guard, self->memory, self->bytes);
  if (code == NX_OK) code = nx_pins_open(&self->pins, self->memory, self->bytes);
  if (code == NX_OK) return (PyObject *)self;
  py_raise(code);
  Py_DECREF(self);
  return NULL;
}

static void py_pin_array_dealloc(py_pin_array *self) {
  PyTypeObject *type = Py_TYPE(self);
  nx_pins_close(self->pins);
  py_guard_end(&self->guard);
  nx_unmap(self->memory, self->bytes);
  type->tp_free(self);
  Py_DECREF(type);
}

static PyObject *py_pin_array_held(py_pin_array *self, void *closure) {
  (void)closure;
  return PyLong_FromUnsignedLongLong(nx_pins_held(self->pins));
}

static PyObject *py_pin_array_buckets(py_pin_array *self, PyObject *unused) {
  (void)unused;
  uint64_t held = nx_pins_held(self->pins);
  uint32_t *buckets = PyMem_New(uint32_t, held + 1);
  if (buckets == NULL) return PyErr_NoMemory();
  PyObject *list = py_u32_list(buckets, (Py_ssize_t)nx_pins_buckets(self->pins, buckets, held));
  PyMem_Free(buckets);
  return list;
}

static PyObject *py_pin_array_counts(py_pin_array *self, void *closure) {
  (void)closure;
  uint64_t counts[3];
  nx_pins_counts(self->pins, counts);
  return Py_BuildValue("KKK", (unsigned long long)counts[0], (unsigned long long)counts[1],
                       (unsigned long long)counts[2]);
}

/* NULL with an error set; the caller frees. `fast` is a list or a tuple. */
static nx_pins **py_pins_of(PyObject *fast) {
  Py_ssize_t n = PySequence_Fast_GET_SIZE(fast);
  nx_pins **pins = PyMem_New(nx_pins *, n + 1);
  if (pins == NULL) PyErr_NoMemory();
  for (Py_ssize_t i = 0; pins != NULL && i < n; i++) {
    PyObject *item = PySequence_Fast_GET_ITEM(fast, i);
    if (!Py_IS_TYPE(item, py_pin_array_type)) {
      PyErr_SetString(PyExc_TypeError, "pin arrays must be PinArray");
      PyMem_Free(pins);
      return NULL;
    }
    pins[i] = ((py_pin_array *)item)->pins;
  }
  return pins;
}
