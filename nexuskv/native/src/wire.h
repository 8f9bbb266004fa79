/* Owns the socket: msgpack arrays [tag, id, field, ...] over SOCK_SEQPACKET, with their file descriptors.
 * Knows the few shapes that a reader needs (nexuskv/protocol/messages.py has them all), no meaning of a message. */
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>

#define NX_PROTOCOL_VERSION 1u
#define NX_MESSAGE_BYTES (192u * 1024u)
#define NX_MESSAGE_FDS 253u /* the kernel's SCM_MAX_FD */
#define NX_REQUEST_BYTES 512u

/* ---- writing ---- */

typedef struct nx_out {
  uint8_t *bytes;
  size_t used, room;
  uint64_t id;
} nx_out;

static void nx_put(nx_out *out, const void *bytes, size_t size) {
  if (out->room - out->used >= size) memcpy(out->bytes + out->used, bytes, size);
  out->used = out->room - out->used >= size ? out->used + size : SIZE_MAX; /* SIZE_MAX: did not fit, and stays so */
}

static void nx_put_sized(nx_out *out, uint8_t kind, uint64_t value, unsigned width) {
  uint8_t bytes[9] = {kind};
  for (unsigned i = 0; i < width; i++) bytes[1 + i] = (uint8_t)(value >> (8 * (width - 1 - i)));
  nx_put(out, bytes, 1 + width);
}

static void nx_put_uint(nx_out *out, uint64_t value) { nx_put_sized(out, 0xcf, value, 8); }

static void nx_put_array(nx_out *out, uint32_t count) { nx_put_sized(out, 0xdd, count, 4); }

static void nx_put_text(nx_out *out, const char *text) {
  nx_put_sized(out, 0xdb, strlen(text), 4);
  nx_put(out, text, strlen(text));
}

static void nx_put_binary(nx_out *out, const void *bytes, size_t size) {
  nx_put_sized(out, 0xc6, size, 4);
  nx_put(out, bytes, size);
}

/* ---- reading: every take says whether it found what it looked for, within the message ---- */

typedef struct nx_in {
  const uint8_t *at, *end;
} nx_in;

static bool nx_take_number(nx_in *in, unsigned width, uint64_t *value) {
  if ((size_t)(in->end - in->at) < width) return false;
  for (*value = 0; width > 0; width--) *value = *value << 8 | *in->at++;
  return true;
}

static bool nx_take_uint(nx_in *in, uint64_t *value) {
  uint64_t kind;
  if (!nx_take_number(in, 1, &kind)) return false;
  if (kind >= 0xcc && kind <= 0xcf) return nx_take_number(in, 1u << (kind - 0xcc), value);
  *value = kind;
  return kind < 0x80;
}

static bool nx_take_array(nx_in *in, uint64_t *count) {
  uint64_t kind;
  if (!nx_take_number(in, 1, &kind)) return false;
  if (kind == 0xdc || kind == 0xdd) return nx_take_number(in, kind == 0xdc ? 2 : 4, count);
  *count = kind & 0x0f;
  return kind >> 4 == 9;
}

/* A text or a binary. */
static bool nx_take_bytes(nx_in *in, const char **bytes, size_t *size) {
  uint64_t kind, length;
  if (!nx_take_number(in, 1, &kind)) return false;
  if (kind >> 5 == 5) length = kind & 0x1f;
  else if (kind >= 0xc4 && kind <= 0xc6 && nx_take_number(in, 1u << (kind - 0xc4), &length)) (void)0;
  else if (kind >= 0xd9 && kind <= 0xdb && nx_take_number(in, 1u << (kind - 0xd9), &length)) (void)0;
  else return false;
  if (length > (size_t)(in->end - in->at)) return false;
  *bytes = (const char *)in->at;
  *size = (size_t)length;
  in->at += length;
  return true;
}

/* Into a zero-terminated field, cut to its room. */
static bool nx_take_text(nx_in *in, char *text, size_t room) {
  const char *bytes;
  size_t size;
  if (!nx_take_bytes(in, &bytes, &size)) return false;
  if (size >= room) size = room - 1;
  memcpy(text, bytes, size);
  text[size] = 0;
  return true;
}

/* ---- the socket ---- */

typedef struct nx_message {
  char tag[16];
  uint64_t id;
  uint64_t fields; /* after the id */
  nx_in in;
  int fds[NX_MESSAGE_FDS];
  size_t fd_count;
} nx_message;

static void nx_close_fds(nx_message *message) {
  while (message->fd_count > 0) close(message->fds[--message->fd_count]);
}

static int nx_socket_code(void) { return errno == EAGAIN || errno == EWOULDBLOCK ? NX_E_TIMEOUT : NX_E_SYSTEM; }

static void nx_collect_fds(struct msghdr *header, nx_message *message) {
  for (struct cmsghdr *part = CMSG_FIRSTHDR(header); part != NULL; part = CMSG_NXTHDR(header, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    if (count > NX_MESSAGE_FDS - message->fd_count) count = NX_MESSAGE_FDS - message->fd_count;
    memcpy(message->fds + message->fd_count, CMSG_DATA(part), count * sizeof(int));
    message->fd_count += count;
  }
}

static ssize_t nx_receive_some(int fd, struct msghdr *header) {
  const size_t room = header->msg_controllen;
  ssize_t size;
  do {
    header->msg_controllen = room; /* a call that failed has used it up */
    size = recvmsg(fd, header, MSG_CMSG_CLOEXEC);
  } while (size < 0 && errno == EINTR);
  if (size < 0) header->msg_controllen = room;
  return size;
}

static int nx_receive(int fd, uint8_t *buffer, nx_message *message) {
  union {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(sizeof(int) * NX_MESSAGE_FDS)];
  } control;
  struct iovec part = {buffer, NX_MESSAGE_BYTES};
  struct msghdr header = {
      .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
  uint64_t fields = 0;
  message->fd_count = 0;
  ssize_t size = nx_receive_some(fd, &header);
  /* A peer that hung up without having read all of ours shows as this, once, before what it had sent until then. */
  if (size < 0 && errno == ECONNRESET) size = nx_receive_some(fd, &header);
  if (size < 0) return nx_socket_code();
  nx_collect_fds(&header, message);
  if (size == 0) errno = ECONNRESET;
  if (size == 0) return NX_E_SYSTEM;
  message->in = (nx_in){buffer, buffer + size};
  if (!(header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) && nx_take_array(&message->in, &fields) && fields >= 2 &&
      nx_take_text(&message->in, message->tag, sizeof message->tag) && nx_take_uint(&message->in, &message->id)) {
    message->fields = fields - 2;
    return NX_OK;
  }
  nx_close_fds(message);
  return NX_E_PROTOCOL;
}

/* A peer that hung up may have said why: that is still to be read. */
static int nx_send(int fd, const nx_out *out) {
  ssize_t sent;
  if (out->used == SIZE_MAX) return NX_E_ARGUMENT;
  do sent = send(fd, out->bytes, out->used, MSG_NOSIGNAL);
  while (sent < 0 && errno == EINTR);
  return sent >= 0 || errno == EPIPE || errno == ECONNRESET ? NX_OK : nx_socket_code();
}

static int nx_path_of(const char *address, char *path, size_t room) {
  if (strncmp(address, "unix:", 5) != 0 || address[5] == 0) return NX_E_ARGUMENT;
  return (size_t)snprintf(path, room, "%s", address + 5) < room ? NX_OK : NX_E_ARGUMENT;
}

/* The same places in the same order as nexuskv/ipc/address.py. */
static int nx_find_path(const char *address, char *path, size_t room) {
  static const char *const system_path = "/run/nexuskv/nexuskvd.sock";
  const char *chosen = address != NULL ? address : getenv("NEXUSKV_SOCKET"), *runtime = getenv("XDG_RUNTIME_DIR");
  if (chosen != NULL && *chosen != 0) return nx_path_of(chosen, path, room);
  int size = runtime != NULL && *runtime != 0
                 ? snprintf(path, room, "%s/nexuskv/default.sock", runtime)
                 : snprintf(path, room, "/tmp/nexuskv-%u/default.sock", (unsigned)getuid());
  if ((size_t)size >= room) return NX_E_ARGUMENT;
  if (access(path, F_OK) != 0 && access(system_path, F_OK) == 0) snprintf(path, room, "%s", system_path);
  return NX_OK;
}

static int nx_connect(const struct sockaddr_un *where, uint32_t timeout_ms, int *out) {
  struct timeval limit = {timeout_ms / 1000, timeout_ms % 1000 * 1000};
  int room = 1 << 20, fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (fd < 0) return NX_E_SYSTEM;
  setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
  if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0 &&
      setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) == 0 &&
      connect(fd, (const struct sockaddr *)where, sizeof *where) == 0) {
    *out = fd;
    return NX_OK;
  }
  int saved = errno;
  close(fd);
  errno = saved;
  return nx_socket_code();
}
