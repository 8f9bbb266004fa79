/* Owns a client's attachments, newest first, each with the segments that are mapped for it. Knows no socket.
 *
 *   newest -> older -> ... -> NULL     an older one goes with the last of its pages that is `held` */

typedef struct nx_mapped {
  uint32_t segment;
  void *memory;
  size_t bytes;
} nx_mapped;

typedef struct nx_attachment {
  struct nx_attachment *older;
  nx_reader *reader;
  uint64_t held;
  nx_mapped *mapped;
  size_t mapped_count;
} nx_attachment;

static void nx_attachment_close(nx_attachment *attachment) {
  for (size_t i = 0; i < attachment->mapped_count; i++)
    nx_unmap(attachment->mapped[i].memory, attachment->mapped[i].bytes);
  nx_detach(attachment->reader);
  free(attachment->mapped);
  free(attachment);
}

/* All but the newest go once nothing of them is pinned. */
static void nx_drop_old(nx_attachment *newest) {
  if (newest == NULL) return;
  for (nx_attachment **place = &newest->older; *place != NULL;) {
    nx_attachment *old = *place;
    if (old->held > 0) {
      place = &old->older;
      continue;
    }
    *place = old->older;
    nx_attachment_close(old);
  }
}

static nx_attachment *nx_attachment_of(nx_attachment *newest, const nx_handle *handle) {
  nx_attachment *found = newest;
  while (found != NULL && found->reader->attachment != handle->attachment) found = found->older;
  return found;
}

static nx_mapped *nx_mapped_of(nx_attachment *attachment, uint32_t segment) {
  for (size_t i = 0; i < attachment->mapped_count; i++)
    if (attachment->mapped[i].segment == segment) return &attachment->mapped[i];
  return NULL;
}

static int nx_keep_segment(nx_attachment *attachment, uint32_t segment, int fd, uint64_t least) {
  nx_mapped fresh = {segment, NULL, 0};
  nx_mapped *grown = realloc(attachment->mapped, (attachment->mapped_count + 1) * sizeof *grown);
  if (grown == NULL) return NX_E_SYSTEM;
  attachment->mapped = grown;
  if (nx_mapped_of(attachment, segment) != NULL) return NX_OK;
  int code = nx_map(fd, 0, &fresh.memory, &fresh.bytes);
  if (code != NX_OK) return code;
  if (fresh.bytes < least) { /* to read beyond the object would be a SIGBUS */
    nx_unmap(fresh.memory, fresh.bytes);
    return NX_E_BOUNDS;
  }
  grown[attachment->mapped_count++] = fresh;
  return NX_OK;
}

static void nx_forget_segment(nx_attachment *attachment, uint32_t segment) {
  nx_mapped *gone = nx_mapped_of(attachment, segment);
  if (gone == NULL) return;
  nx_unmap(gone->memory, gone->bytes);
  *gone = attachment->mapped[--attachment->mapped_count];
}
