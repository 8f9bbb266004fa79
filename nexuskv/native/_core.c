/* _core.c: the C core as a Python module. Owns the translation of arguments, results and errors, and nothing else.
 *
 * Raw C API: of the ways that were measured (README, section Design notes) it costs least: 0.33 to 0.57 us for one
 * key; for 256 keys 2.7 us against 5.1 of cffi and 4.6 of ctypes. The GIL is released from NX_PY_BATCH keys on: below
 * that a hit takes less time than to hand the GIL over, and to get it back from a busy thread can take a whole switch
 * interval (5 ms). */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>
#include <stddef.h>

#include "src/py_common.h"
/* in this order: each uses those before it */
#include "src/py_reader.h"
#include "src/py_guard.h"
#include "src/py_pins.h"
#include "src/py_writer.h"
#include "src/py_directory.h"
#include "src/py_socket.h"
#include "src/py_copy.h"

static PyObject *core_index_bytes(PyObject *module, PyObject *args) {
  (void)module;
  unsigned long long entries;
  unsigned int directory;
  if (!PyArg_ParseTuple(args, "KI", &entries, &directory)) return NULL;
  nx_index_params params = {
      .max_entries = entries, .index_id = 1, .directory_capacity = directory, .instance = "", .tenant = ""};
  uint64_t index = 0, touch = 0;
  int code = nx_index_bytes(&params, &index);
  if (code == NX_OK) code = nx_touch_bytes(&params, &touch);
  if (code != NX_OK) return py_raise(code);
  return Py_BuildValue("KK", (unsigned long long)index, (unsigned long long)touch);
}

static PyObject *core_pin_bytes(PyObject *module, PyObject *arg) {
  (void)module;
  uint32_t capacity;
  if (!py_u32(arg, &capacity)) return NULL;
  return PyLong_FromUnsignedLongLong(nx_pin_bytes(capacity));
}

static PyObject *core_format_index(PyObject *module, PyObject *args, PyObject *kwargs) {
  (void)module;
  static char *names[] = {"fd",     "max_entries", "directory_capacity", "boot_epoch", "index_id", "instance",
                          "tenant", NULL};
  int fd;
  unsigned long long entries, epoch, id;
  nx_index_params params = {0};
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "i$KIKKss", names, &fd, &entries, &params.directory_capacity, &epoch,
                                   &id, &params.instance, &params.tenant))
    return NULL;
  params.max_entries = entries;
  params.boot_epoch = epoch;
  params.index_id = id;
  void *memory;
  size_t bytes;
  int code = nx_map(fd, 1, &memory, &bytes);
  if (code != NX_OK) return py_raise(code);
  code = nx_index_format(memory, bytes, &params);
  nx_unmap(memory, bytes);
  return py_none_or_raise(code);
}

static PyObject *core_format_pins(PyObject *module, PyObject *args) {
  (void)module;
  int fd;
  unsigned long long id, session;
  if (!PyArg_ParseTuple(args, "iKK", &fd, &id, &session)) return NULL;
  void *memory;
  size_t bytes;
  int code = nx_map(fd, 1, &memory, &bytes);
  if (code != NX_OK) return py_raise(code);
  code = nx_pin_format(memory, bytes, id, session);
  nx_unmap(memory, bytes);
  return py_none_or_raise(code);
}

static PyObject *core_lock_owner(PyObject *module, PyObject *arg) {
  (void)module;
  int fd = PyObject_AsFileDescriptor(arg);
  if (fd < 0) return NULL;
  int code = nx_owner_lock(fd);
  if (code == NX_E_SYSTEM) return py_raise(code);
  return PyBool_FromLong(code == NX_OK);
}

static PyObject *core_owner_alive(PyObject *module, PyObject *arg) {
  (void)module;
  int fd = PyObject_AsFileDescriptor(arg);
  if (fd < 0) return NULL;
  int alive = nx_owner_alive(fd);
  if (alive < 0) return py_raise(alive);
  return PyBool_FromLong(alive);
}

static PyMethodDef core_functions[] = {
    {"index_bytes", core_index_bytes, METH_VARARGS, "Sizes of an index object and of its touch object."},
    {"pin_bytes", core_pin_bytes, METH_O, "Size of a pin object with so many words."},
    {"format_index", (PyCFunction)(void (*)(void))core_format_index, METH_VARARGS | METH_KEYWORDS,
     "Formats a zeroed index object."},
    {"format_pins", core_format_pins, METH_VARARGS, "Formats a zeroed pin object; its size gives the capacity."},
    {"lock_owner", core_lock_owner, METH_O,
     "Locks the object for this open file description; False if another holds it."},
    {"owner_alive", core_owner_alive, METH_O, "Does another open file description hold the object's lock?"},
    {"exchange", core_exchange, METH_VARARGS, "Sends a message and receives the next one."},
    {"poll", core_poll, METH_VARARGS, "Receives a message that is there."},
    {"fill", core_fill, METH_VARARGS, "Copies pages into slots."},
    {NULL, NULL, 0, NULL}};

static struct PyModuleDef core_module = {PyModuleDef_HEAD_INIT,
                                         "nexuskv.native._core",
                                         "The shared-memory index: hits without the daemon.",
                                         -1,
                                         core_functions,
                                         NULL,
                                         NULL,
                                         NULL,
                                         NULL};

static int core_constants(PyObject *module) {
  static const struct {
    const char *name;
    long value;
  } constants[] = {{"ABSENT", NX_ABSENT},
                   {"BEING_EVICTED", NX_BEING_EVICTED},
                   {"BEING_WRITTEN", NX_BEING_WRITTEN},
                   {"PRESENT", NX_PRESENT},
                   {"WRITING", NX_WRITING},
                   {"LIVE", NX_LIVE},
                   {"RETIRING", NX_RETIRING},
                   {"FULL", NX_E_FULL},
                   {"EXISTS", NX_E_EXISTS},
                   {"LAYOUT_VERSION", NX_LAYOUT_VERSION}};
  for (size_t i = 0; i < sizeof constants / sizeof *constants; i++)
    if (PyModule_AddIntConstant(module, constants[i].name, constants[i].value) < 0) return -1;
  return 0;
}

PyMODINIT_FUNC PyInit__core(void) {
  PyObject *module = PyModule_Create(&core_module);
  if (module == NULL) return NULL;
  if (py_add_errors(module) < 0 || core_constants(module) < 0 || py_add_reader(module) < 0 ||
      py_add_writer(module) < 0) {
    Py_DECREF(module);
    return NULL;
  }
  return module;
}
