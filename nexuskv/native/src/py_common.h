/* Owns what all types of the binding share: errors by blame, keys, integers, types. */
#include "../nexuskv.h"

#define NX_PY_BATCH 1024 /* keys from which the GIL is released */

static PyObject *py_error_moved, *py_error_pins_full, *py_error_layout, *py_error_full, *py_error_closed;

static int py_add_error(PyObject *module, PyObject *base, const char *name, const char *code, PyObject **slot) {
  char full[80];
  snprintf(full, sizeof full, "nexuskv.native._core.%s", name);
  PyObject *members = Py_BuildValue("{s:s}", "code", code);
  if (members == NULL) return -1;
  *slot = PyErr_NewException(full, base, members);
  Py_DECREF(members);
  return *slot == NULL ? -1 : PyModule_AddObjectRef(module, name, *slot);
}

static int py_add_errors(PyObject *module) {
  PyObject *errors = PyImport_ImportModule("nexuskv.errors");
  PyObject *base = errors == NULL ? NULL : PyObject_GetAttrString(errors, "NexusError");
  py_error_closed = errors == NULL ? NULL : PyObject_GetAttrString(errors, "Closed");
  Py_XDECREF(errors);
  if (base == NULL || py_error_closed == NULL) return -1;
  int code = py_add_error(module, base, "Moved", "moved", &py_error_moved);
  if (code == 0) code = py_add_error(module, base, "PinsFull", "pins_full", &py_error_pins_full);
  if (code == 0) code = py_add_error(module, base, "LayoutError", "layout", &py_error_layout);
  if (code == 0) code = py_add_error(module, base, "FullError", "index_full", &py_error_full);
  Py_DECREF(base);
  return code;
}

static PyObject *py_raise(int code) {
  PyObject *kind = PyExc_RuntimeError;
  switch (code) {
    case NX_E_SYSTEM: return PyErr_SetFromErrno(PyExc_OSError);
    case NX_E_ARGUMENT: kind = PyExc_ValueError; break;
    case NX_E_MOVED:
    case NX_E_FORKED: kind = py_error_moved; break;
    case NX_E_PINS_FULL: kind = py_error_pins_full; break;
    case NX_E_FULL: kind = py_error_full; break;
    case NX_E_ATTACHED:
    case NX_E_MAGIC:
    case NX_E_VERSION:
    case NX_E_BOUNDS:
    case NX_E_FOREIGN: kind = py_error_layout; break;
    default: break;
  }
  PyErr_SetString(kind, nx_error(code));
  return NULL;
}

static PyObject *py_none_or_raise(int code) {
  if (code != NX_OK) return py_raise(code);
  Py_RETURN_NONE;
}

static bool py_u64(PyObject *value, uint64_t *out) {
  *out = PyLong_AsUnsignedLongLong(value);
  return *out != (uint64_t)-1 || !PyErr_Occurred();
}

static bool py_u32(PyObject *value, uint32_t *out) {
  uint64_t wide;
  if (!py_u64(value, &wide)) return false;
  if (wide > UINT32_MAX) {
    PyErr_SetString(PyExc_OverflowError, "does not fit 32 bits");
    return false;
  }
  *out = (uint32_t)wide;
  return true;
}

/* n keys side by side; small batches need no allocation. */
typedef struct py_keys {
  Py_ssize_t n;
  const char *bytes;
  char *owned;
  Py_buffer view;
  char small[64 * NX_KEY_BYTES];
} py_keys;

static void py_keys_close(py_keys *keys) {
  if (keys->view.obj != NULL) PyBuffer_Release(&keys->view);
  PyMem_Free(keys->owned);
}

static bool py_keys_buffer(py_keys *keys, PyObject *blob) {
  if (PyObject_GetBuffer(blob, &keys->view, PyBUF_SIMPLE) < 0) {
    keys->view.obj = NULL;
    PyErr_SetString(PyExc_TypeError, "keys must be a list of bytes, or one buffer of 32 bytes a key");
    return false;
  }
  keys->bytes = keys->view.buf;
  keys->n = keys->view.len / NX_KEY_BYTES;
  if (keys->view.len % NX_KEY_BYTES == 0) return true;
  PyErr_SetString(PyExc_ValueError, "a key has 32 bytes");
  return false;
}

static bool py_keys_list(py_keys *keys, PyObject *list) {
  PyObject **items = PySequence_Fast_ITEMS(list);
  keys->n = PySequence_Fast_GET_SIZE(list);
  if (keys->n > 64) {
    keys->owned = PyMem_Malloc((size_t)keys->n * NX_KEY_BYTES);
    if (keys->owned == NULL) return PyErr_NoMemory() != NULL;
  }
  char *to = keys->owned != NULL ? keys->owned : keys->small;
  keys->bytes = to;
  for (Py_ssize_t i = 0; i < keys->n; i++, to += NX_KEY_BYTES) {
    if (!PyBytes_Check(items[i]) || PyBytes_GET_SIZE(items[i]) != NX_KEY_BYTES) {
      PyErr_Format(PyExc_ValueError, "key %zd is not bytes of length 32", i);
      return false;
    }
    memcpy(to, PyBytes_AS_STRING(items[i]), NX_KEY_BYTES);
  }
  return true;
}

static bool py_keys_open(py_keys *keys, PyObject *source) {
  keys->owned = NULL;
  keys->view.obj = NULL;
  return PyList_Check(source) || PyTuple_Check(source) ? py_keys_list(keys, source) : py_keys_buffer(keys, source);
}

static PyTypeObject *py_add_type(PyObject *module, PyType_Spec *spec) {
  PyTypeObject *type = (PyTypeObject *)PyType_FromSpec(spec);
  if (type != NULL && PyModule_AddType(module, type) < 0) Py_CLEAR(type);
  return type;
}

static PyObject *py_u32_list(const uint32_t *values, Py_ssize_t n) {
  PyObject *list = PyList_New(n);
  for (Py_ssize_t i = 0; list != NULL && i < n; i++) {
    PyObject *value = PyLong_FromUnsignedLong(values[i]);
    if (value == NULL) Py_CLEAR(list);
    else PyList_SET_ITEM(list, i, value);
  }
  return list;
}
