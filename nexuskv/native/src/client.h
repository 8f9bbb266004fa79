/* Owns a session and what it asks for: hello, attach, the segments that the daemon hands out, and pages in place.
 *
 *   client                                  daemon
 *   [hello, id, version, name]         ->
 *                                      <-   [welcome, id, version, boot epoch, instance, tenant, release]
 *   [attach, id]                       ->
 *                                      <-   [attached, id, session]   + descriptors of index, touch, pins (locked)
 *   [map, id, [segment, ...]]          ->
 *                                      <-   [segments, 0, [[segment, arena, slots, slot bytes, writable], ...]] + one each
 *                                      <-   [done, id]
 *
 * Handles name their attachment, so an old one lives until its last page is unpinned. A segment's number means
 * something in one index alone: what a session hands out is kept only where its daemon is the one that serves the index
 * of the newest attachment. */

struct nx_client {
  int fd;
  uint32_t timeout_ms;
  pid_t owner; /* a child shares the socket, and would take its parent's answers */
  uint64_t requests;
  uint64_t epoch; /* of the daemon that the session is with */
  struct sockaddr_un where;
  nx_attachment *newest;
  uint8_t *buffer;
  char instance[NX_NAME_BYTES], tenant[NX_NAME_BYTES], reason[512];
};

const char *nx_client_reason(const nx_client *client) { return client->reason; }

const char *nx_client_instance(const nx_client *client) { return client->instance; }

const char *nx_client_tenant(const nx_client *client) { return client->tenant; }

nx_reader *nx_client_reader(nx_client *client) { return client->newest == NULL ? NULL : client->newest->reader; }

static int nx_fail(nx_client *client, int code) {
  if (code == NX_E_SYSTEM)
    snprintf(client->reason, sizeof client->reason, "%s: %s", client->where.sun_path, strerror(errno));
  else if (code != NX_OK && code != NX_E_REFUSED)
    snprintf(client->reason, sizeof client->reason, "%s: %s", client->where.sun_path, nx_error(code));
  return code;
}

/* ---- messages ---- */

/* Whether the session is with the daemon that serves the index of the newest attachment. */
static bool nx_at_home(const nx_client *client) {
  if (client->newest == NULL) return false;
  const nx_reader *reader = client->newest->reader;
  const nx_index_header *header = reader->table.header;
  return nx_epoch(reader) == client->epoch &&
         strncmp(header->instance, client->instance, sizeof header->instance) == 0 &&
         strncmp(header->tenant, client->tenant, sizeof header->tenant) == 0;
}

/* row: segment, arena, slots, slot bytes. Whether the index says the same of that segment. */
static bool nx_is_known(const nx_client *client, const uint64_t row[4]) {
  nx_segment known;
  return nx_at_home(client) && nx_find_segment(client->newest->reader, (uint32_t)row[0], &known) == NX_OK &&
         known.arena == row[1] && known.slot_count == row[2] && known.slot_bytes == row[3];
}

static int nx_take_segments(nx_client *client, nx_message *message) {
  uint64_t count, fields, row[4];
  int code = nx_take_array(&message->in, &count) && count == message->fd_count ? NX_OK : NX_E_PROTOCOL;
  for (uint64_t i = 0; i < count && code == NX_OK; i++) {
    bool whole = nx_take_array(&message->in, &fields) && fields == 5;
    for (int j = 0; j < 4; j++) whole = whole && nx_take_uint(&message->in, &row[j]);
    if (!whole || message->in.at == message->in.end || row[0] > UINT32_MAX ||
        (row[3] != 0 && row[2] > UINT64_MAX / row[3]))
      return NX_E_PROTOCOL;
    bool writable = *message->in.at++ == 0xc3;
    if (!writable && nx_is_known(client, row))
      code = nx_keep_segment(client->newest, (uint32_t)row[0], message->fds[i], row[2] * row[3]);
  }
  return code;
}

static int nx_take_dropped(nx_client *client, nx_message *message) {
  uint64_t count, segment;
  if (!nx_take_array(&message->in, &count)) return NX_E_PROTOCOL;
  for (uint64_t i = 0; i < count; i++) {
    if (!nx_take_uint(&message->in, &segment)) return NX_E_PROTOCOL;
    if (nx_at_home(client)) nx_forget_segment(client->newest, (uint32_t)segment);
  }
  return NX_OK;
}

static int nx_take_refusal(nx_client *client, nx_message *message) {
  char code[64];
  if (nx_take_text(&message->in, code, sizeof code) &&
      nx_take_text(&message->in, client->reason, sizeof client->reason))
    return NX_E_REFUSED;
  return NX_E_PROTOCOL;
}

/* Waits for the reply to request `id`; takes what comes unasked before it. `message` has descriptors to close. */
static int nx_await(nx_client *client, uint64_t id, const char *expected, nx_message *message) {
  for (;;) {
    int code = nx_receive(client->fd, client->buffer, message);
    if (code != NX_OK) return code;
    if (strcmp(message->tag, "refused") == 0 && (message->id == id || message->id == 0))
      code = nx_take_refusal(client, message);
    else if (message->id == id) return strcmp(message->tag, expected) == 0 ? NX_OK : NX_E_PROTOCOL;
    else if (strcmp(message->tag, "segments") == 0) code = nx_take_segments(client, message);
    else if (strcmp(message->tag, "dropped") == 0) code = nx_take_dropped(client, message);
    nx_close_fds(message);
    if (code != NX_OK) return code;
  }
}

static nx_out nx_request(nx_client *client, uint8_t *bytes, size_t room, const char *tag, uint32_t fields) {
  nx_out out = {bytes, 0, room, ++client->requests};
  nx_put_array(&out, 2 + fields);
  nx_put_text(&out, tag);
  nx_put_uint(&out, out.id);
  return out;
}

static int nx_call(nx_client *client, const nx_out *out, const char *expected, nx_message *message) {
  message->fd_count = 0;
  if (getpid() != client->owner) return NX_E_FORKED;
  int code = nx_send(client->fd, out);
  return code == NX_OK ? nx_await(client, out->id, expected, message) : code;
}

/* ---- the session ---- */

static int nx_hello(nx_client *client) {
  uint8_t bytes[NX_REQUEST_BYTES];
  uint64_t version;
  nx_message message;
  nx_out out = nx_request(client, bytes, sizeof bytes, "hello", 2);
  nx_put_uint(&out, NX_PROTOCOL_VERSION);
  nx_put_text(&out, "nexuskv-c/" NX_RELEASE);
  int code = nx_call(client, &out, "welcome", &message);
  if (code != NX_OK) return code;
  nx_close_fds(&message);
  bool whole = nx_take_uint(&message.in, &version) && nx_take_uint(&message.in, &client->epoch) &&
               nx_take_text(&message.in, client->instance, sizeof client->instance) &&
               nx_take_text(&message.in, client->tenant, sizeof client->tenant);
  return whole ? NX_OK : NX_E_PROTOCOL;
}

static void nx_session_close(nx_client *client) {
  if (client->fd >= 0) close(client->fd);
  client->fd = -1;
}

static int nx_session_open(nx_client *client) {
  nx_session_close(client);
  int code = nx_connect(&client->where, client->timeout_ms, &client->fd);
  return code == NX_OK ? nx_hello(client) : code;
}

static int nx_attach_session(nx_client *client) {
  uint8_t bytes[NX_REQUEST_BYTES];
  nx_message message;
  nx_out out = nx_request(client, bytes, sizeof bytes, "attach", 0);
  nx_attachment *fresh = calloc(1, sizeof *fresh);
  if (fresh == NULL) return NX_E_SYSTEM;
  int code = nx_call(client, &out, "attached", &message);
  if (code == NX_OK)
    code = message.fd_count == 3 ? nx_attach(&fresh->reader, message.fds[0], message.fds[1], message.fds[2])
                                 : NX_E_PROTOCOL;
  nx_close_fds(&message);
  if (code != NX_OK) {
    free(fresh);
    return code;
  }
  fresh->older = client->newest;
  client->newest = fresh;
  nx_drop_old(client->newest);
  return NX_OK;
}

/* A new session, and a new attachment where its daemon serves another index than the newest one's. */
static int nx_renew(nx_client *client) {
  int code = nx_session_open(client);
  if (code == NX_OK && !nx_at_home(client)) code = nx_attach_session(client);
  if (code != NX_OK) nx_session_close(client); /* so that the next call tries all of it again */
  return code;
}

int nx_client_open(nx_client **out, const char *address, uint32_t timeout_ms) {
  nx_client *client = calloc(1, sizeof *client);
  *out = client;
  if (client == NULL) return NX_E_SYSTEM;
  client->fd = -1;
  client->timeout_ms = timeout_ms;
  client->owner = getpid();
  client->where.sun_family = AF_UNIX;
  client->buffer = malloc(NX_MESSAGE_BYTES);
  if (client->buffer == NULL) return nx_fail(client, NX_E_SYSTEM);
  int code = nx_find_path(address, client->where.sun_path, sizeof client->where.sun_path);
  if (code == NX_E_ARGUMENT) {
    snprintf(client->reason, sizeof client->reason,
             "the daemon's address is unix:/path/to/socket, of %zu bytes at most: correct NEXUSKV_SOCKET or the argument",
             sizeof client->where.sun_path - 1);
    return code;
  }
  if (code == NX_OK) code = nx_renew(client);
  return nx_fail(client, code);
}

void nx_client_close(nx_client *client) {
  if (client == NULL) return;
  while (client->newest != NULL) {
    nx_attachment *older = client->newest->older;
    nx_attachment_close(client->newest);
    client->newest = older;
  }
  nx_session_close(client);
  free(client->buffer);
  free(client);
}

/* A session that a restart of the daemon has ended is made anew, once. What was pinned does not depend on it. */
static int nx_call_again(nx_client *client, nx_out *out, const char *expected, nx_message *message) {
  int code = nx_call(client, out, expected, message);
  if (code != NX_E_SYSTEM) return code;
  nx_close_fds(message);
  code = nx_renew(client);
  return code == NX_OK ? nx_call(client, out, expected, message) : code;
}

int nx_client_register(nx_client *client, const void *descriptor, size_t bytes, uint32_t *arena) {
  nx_message message;
  uint64_t number;
  uint8_t *buffer = malloc(bytes + NX_REQUEST_BYTES);
  if (buffer == NULL) return nx_fail(client, NX_E_SYSTEM);
  nx_out out = nx_request(client, buffer, bytes + NX_REQUEST_BYTES, "register", 1);
  nx_put_binary(&out, descriptor, bytes);
  int code = nx_call_again(client, &out, "registered", &message);
  if (code == NX_OK && (!nx_take_uint(&message.in, &number) || number > UINT32_MAX)) code = NX_E_PROTOCOL;
  if (code == NX_OK) *arena = (uint32_t)number;
  nx_close_fds(&message);
  free(buffer);
  return nx_fail(client, code);
}

/* NX_E_MOVED: another daemon answers now, with an index of its own, which is attached. */
static int nx_map_segment(nx_client *client, nx_attachment *here, uint32_t segment) {
  uint8_t bytes[NX_REQUEST_BYTES];
  nx_message message;
  nx_out out = nx_request(client, bytes, sizeof bytes, "map", 1);
  nx_put_array(&out, 1);
  nx_put_uint(&out, segment);
  int code = nx_call_again(client, &out, "done", &message);
  nx_close_fds(&message);
  if (client->newest != here) return NX_E_MOVED;
  return code == NX_OK && nx_mapped_of(here, segment) == NULL ? NX_E_UNMAPPED : code;
}

/* How many leading pages can be read here. */
static size_t nx_readable(nx_client *client, nx_attachment *here, const nx_handle *handles, size_t n, int *code) {
  for (size_t i = 0; i < n; i++) {
    nx_mapped *mapped = nx_mapped_of(here, handles[i].segment);
    if (mapped == NULL && (*code = nx_map_segment(client, here, handles[i].segment)) != NX_OK) return i;
    if (mapped == NULL) mapped = nx_mapped_of(here, handles[i].segment);
    if (nx_page(mapped->memory, mapped->bytes, &handles[i]) == NULL) {
      *code = NX_E_BOUNDS;
      return i;
    }
  }
  return n;
}

/* Pins in the newest attachment what can be read there. NX_E_MOVED pins nothing: it is that one no more. */
static size_t nx_pin_here(nx_client *client, const void *keys, size_t n, nx_handle *handles, int *code) {
  nx_attachment *here = client->newest;
  int64_t pinned = nx_pin(here->reader, keys, n, handles);
  *code = pinned < 0 ? (int)pinned : NX_OK;
  if (pinned <= 0) return 0;
  here->held += (uint64_t)pinned; /* before anything is mapped: that may attach anew, and would let go of this one */
  size_t readable = nx_readable(client, here, handles, (size_t)pinned, code);
  if (*code == NX_E_MOVED) readable = 0;
  nx_unpin(here->reader, handles + readable, (size_t)pinned - readable);
  here->held -= (uint64_t)pinned - readable;
  return readable;
}

int64_t nx_client_pin(nx_client *client, const void *keys, size_t n, nx_handle *handles) {
  if (client->newest == NULL) return nx_fail(client, NX_E_ARGUMENT);
  int code;
  size_t readable = nx_pin_here(client, keys, n, handles, &code);
  if (code == NX_E_MOVED) {
    code = nx_at_home(client) ? NX_OK : nx_renew(client);
    if (code != NX_OK) return nx_fail(client, code);
    nx_drop_old(client->newest);
    readable = nx_pin_here(client, keys, n, handles, &code);
  }
  nx_fail(client, code);
  bool away = code == NX_E_SYSTEM || code == NX_E_TIMEOUT || code == NX_E_UNMAPPED || code == NX_E_MOVED;
  return code == NX_OK || away || readable > 0 ? (int64_t)readable : code;
}

int nx_client_unpin(nx_client *client, const nx_handle *handles, size_t n) {
  int code = NX_OK;
  for (size_t i = 0; i < n; i++) {
    nx_attachment *attachment = nx_attachment_of(client->newest, &handles[i]);
    int ended = attachment == NULL ? NX_E_STALE : nx_unpin(attachment->reader, &handles[i], 1);
    if (ended == NX_OK) attachment->held--;
    else code = ended;
  }
  if (code != NX_E_FORKED) nx_drop_old(client->newest);
  return nx_fail(client, code);
}

const void *nx_client_page(nx_client *client, const nx_handle *handle) {
  nx_attachment *attachment = nx_attachment_of(client->newest, handle);
  if (attachment == NULL || attachment->reader->hand->pool.capacity == 0) return NULL; /* the pin is the parent's */
  nx_mapped *mapped = nx_mapped_of(attachment, handle->segment);
  return mapped == NULL ? NULL : nx_page(mapped->memory, mapped->bytes, handle);
}
