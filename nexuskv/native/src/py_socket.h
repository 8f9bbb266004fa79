/* Owns one request and the message that answers it, over a SOCK_SEQPACKET socket, in one call: through Python's socket
 * module the two calls cost a third of the round trip itself. Knows nothing of what the messages say. */

#include <sys/socket.h>
#include <sys/uio.h>

#define PY_DESCRIPTORS 253 /* the kernel's SCM_MAX_FD */

typedef union py_control {
  struct cmsghdr align;
  char bytes[CMSG_SPACE(PY_DESCRIPTORS * sizeof(int))];
} py_control;

/* Those that come after one that cannot be told of are closed. */
static PyObject *py_descriptors(struct msghdr *message) {
  PyObject *list = PyList_New(0);
  for (struct cmsghdr *part = CMSG_FIRSTHDR(message); part != NULL; part = CMSG_NXTHDR(message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    for (size_t at = 0; at + sizeof(int) <= part->cmsg_len - CMSG_LEN(0); at += sizeof(int)) {
      int fd;
      memcpy(&fd, CMSG_DATA(part) + at, sizeof fd);
      PyObject *number = list == NULL ? NULL : PyLong_FromLong(fd);
      if (number == NULL || PyList_Append(list, number) < 0) {
        close(fd);
        Py_CLEAR(list);
      }
      Py_XDECREF(number);
    }
  }
  return list;
}

/* A peer that hung up without having read all of ours shows as ECONNRESET, once, before what it had sent until then. */
static ssize_t py_receive(int fd, struct msghdr *message, size_t room) {
  ssize_t got = recvmsg(fd, message, MSG_CMSG_CLOEXEC);
  if (got >= 0 || errno != ECONNRESET) return got;
  message->msg_controllen = room;
  return recvmsg(fd, message, MSG_CMSG_CLOEXEC);
}

/* Without the GIL. A peer that hung up may have said why: that is still to be read. */
static bool py_send(int fd, const Py_buffer *request) {
  return send(fd, request->buf, (size_t)request->len, MSG_NOSIGNAL) >= 0 || errno == EPIPE || errno == ECONNRESET;
}

/* After a signal the rest is done again, unless its handler raised; the request goes out once. */
static PyObject *py_exchange(int fd, const Py_buffer *request, Py_buffer *answer) {
  py_control control;
  struct iovec place = {answer->buf, (size_t)answer->len};
  struct msghdr message;
  bool sent = false;
  ssize_t got;
  do {
    message = (struct msghdr){
        .msg_iov = &place, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
    Py_BEGIN_ALLOW_THREADS;
    sent = sent || py_send(fd, request);
    got = sent ? py_receive(fd, &message, sizeof control.bytes) : -1;
    Py_END_ALLOW_THREADS;
  } while (got < 0 && errno == EINTR && PyErr_CheckSignals() == 0);
  if (PyErr_Occurred()) return NULL;
  if (!sent && errno == EAGAIN) Py_RETURN_NONE;
  if (got < 0) return PyErr_SetFromErrno(PyExc_OSError);
  PyObject *descriptors = message.msg_controllen == 0 ? PyList_New(0) : py_descriptors(&message);
  return descriptors == NULL ? NULL : Py_BuildValue("nN", (Py_ssize_t)got, descriptors);
}

/* What is there, without waiting and without an error when nothing is: a server looks after every message. */
static PyObject *py_poll(int fd, Py_buffer *answer) {
  ssize_t got = recv(fd, answer->buf, (size_t)answer->len, MSG_DONTWAIT);
  if (got < 0 && errno == ECONNRESET) got = recv(fd, answer->buf, (size_t)answer->len, MSG_DONTWAIT);
  if (got >= 0) return PyLong_FromSsize_t(got);
  if (errno == EAGAIN || errno == EINTR) Py_RETURN_NONE;
  return PyErr_SetFromErrno(PyExc_OSError);
}

static PyObject *core_poll(PyObject *module, PyObject *args) {
  (void)module;
  int fd;
  Py_buffer answer;
  if (!PyArg_ParseTuple(args, "iw*", &fd, &answer)) return NULL;
  PyObject *result = py_poll(fd, &answer);
  PyBuffer_Release(&answer);
  return result;
}

static PyObject *core_exchange(PyObject *module, PyObject *args) {
  (void)module;
  int fd;
  Py_buffer request, answer;
  if (!PyArg_ParseTuple(args, "iy*w*", &fd, &request, &answer)) return NULL;
  PyObject *result = py_exchange(fd, &request, &answer);
  PyBuffer_Release(&request);
  PyBuffer_Release(&answer);
  return result;
}
