/* Owns an attachment: look, pin, unpin. It never writes the index, and a fork leaves it useless in the child. */
#include <sched.h>

/* Lies in a page that fork wipes: a child sees capacity 0, so it can neither use nor release its parent's pins. */
typedef struct nx_hand {
  nx_pin_pool pool;
  uint32_t lock;
} nx_hand;

typedef struct nx_mapping {
  void *memory;
  size_t bytes;
} nx_mapping;

struct nx_reader {
  nx_table table;
  nx_hand *hand;
  uint64_t *touch;
  uint32_t *returned;
  uint64_t session;
  uint32_t attachment;
  nx_mapping mapped[3];
};

/* ---- attach ---- */

static int nx_hand_open(nx_reader *reader, void *pins, size_t pin_bytes) {
  nx_hand *hand = mmap(NULL, sizeof *hand, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (hand == MAP_FAILED) return NX_E_SYSTEM;
  reader->hand = hand;
  if (madvise(hand, sizeof *hand, MADV_WIPEONFORK) != 0) return NX_E_SYSTEM;
  int code = nx_pool_open(&hand->pool, pins, pin_bytes);
  if (code != NX_OK) return code;
  reader->returned = hand->pool.returned;
  reader->session = hand->pool.header->session;
  return hand->pool.header->index_id == reader->table.index_id ? NX_OK : NX_E_FOREIGN;
}

static int nx_reader_open(nx_reader *reader, const void *index, size_t index_bytes, void *touch, size_t touch_bytes,
                          void *pins, size_t pin_bytes) {
  int code = nx_table_open(&reader->table, index, index_bytes);
  if (code != NX_OK) return code;
  if (touch != NULL && touch_bytes / 8 < nx_touch_words(reader->table.bucket_count)) return NX_E_BOUNDS;
  reader->touch = touch;
  return nx_hand_open(reader, pins, pin_bytes);
}

int nx_attach_memory(nx_reader **out, const void *index, size_t index_bytes, void *touch, size_t touch_bytes,
                     void *pins, size_t pin_bytes) {
  static uint32_t attachments;
  nx_reader *reader = calloc(1, sizeof *reader);
  if (reader == NULL) return NX_E_SYSTEM;
  reader->attachment = __atomic_add_fetch(&attachments, 1, __ATOMIC_RELAXED);
  int code = nx_reader_open(reader, index, index_bytes, touch, touch_bytes, pins, pin_bytes);
  if (code == NX_OK) *out = reader;
  else nx_detach(reader);
  return code;
}

int nx_attach(nx_reader **out, int index_fd, int touch_fd, int pin_fd) {
  nx_mapping mapped[3] = {{0}};
  const int fds[3] = {index_fd, touch_fd, pin_fd};
  int code = NX_OK;
  for (int i = 0; i < 3 && code == NX_OK; i++) {
    void *memory = NULL;
    if (i == 1 && touch_fd < 0) continue;
    code = nx_map(fds[i], i > 0, &memory, &mapped[i].bytes);
    if (code == NX_OK) mapped[i].memory = memory;
  }
  /* A mapping holds its open file description, and with it the owner's lock: no child may inherit this one. */
  if (code == NX_OK && madvise(mapped[2].memory, mapped[2].bytes, MADV_DONTFORK) != 0) code = NX_E_SYSTEM;
  if (code == NX_OK)
    code = nx_attach_memory(out, mapped[0].memory, mapped[0].bytes, mapped[1].memory, mapped[1].bytes,
                            mapped[2].memory, mapped[2].bytes);
  if (code == NX_OK) memcpy((*out)->mapped, mapped, sizeof mapped);
  for (int i = 0; i < 3 && code != NX_OK; i++) nx_unmap(mapped[i].memory, mapped[i].bytes);
  return code;
}

void nx_detach(nx_reader *reader) {
  if (reader == NULL) return;
  bool forked = reader->hand != NULL && reader->hand->pool.capacity == 0; /* then the pins were never mapped here */
  for (int i = 0; i < (forked ? 2 : 3); i++) nx_unmap(reader->mapped[i].memory, reader->mapped[i].bytes);
  if (reader->hand != NULL) munmap(reader->hand, sizeof *reader->hand);
  free(reader->returned);
  free(reader);
}

/* ---- look ---- */

static int nx_gate(const nx_reader *reader) {
  if (reader->hand->pool.capacity == 0) return NX_E_FORKED;
  return NX_LOAD(&reader->table.header->moved) ? NX_E_MOVED : NX_OK;
}

uint64_t nx_epoch(const nx_reader *reader) {
  const nx_index_header *header = reader->table.header;
  return NX_LOAD(&header->moved) ? 0 : NX_LOAD_ACQUIRE(&header->boot_epoch);
}

uint64_t nx_session(const nx_reader *reader) { return reader->session; }

int64_t nx_lookup(nx_reader *reader, const void *keys, size_t n) {
  int code = nx_gate(reader);
  if (code != NX_OK) return code;
  nx_walk walk;
  nx_walk_open(&walk, &reader->table, keys, n);
  for (const nx_block *block; (block = nx_walk_next(&walk)) != NULL;)
    for (size_t i = 0; i < block->size; i++)
      if (nx_glance(block, &reader->table, keys, i) != NX_PRESENT) return (int64_t)(block->start + i);
  return (int64_t)n;
}

int nx_status(nx_reader *reader, const void *keys, size_t n, uint8_t *presence) {
  int code = nx_gate(reader);
  if (code != NX_OK) return code;
  nx_walk walk;
  nx_walk_open(&walk, &reader->table, keys, n);
  for (const nx_block *block; (block = nx_walk_next(&walk)) != NULL;)
    for (size_t i = 0; i < block->size; i++)
      presence[block->start + i] = (uint8_t)nx_glance(block, &reader->table, keys, i);
  return NX_OK;
}

/* ---- pin ---- */

static void nx_lock(uint32_t *lock) {
  for (unsigned spins = 1; __atomic_exchange_n(lock, 1u, __ATOMIC_ACQUIRE); spins++)
    if (spins % 64 == 0) sched_yield();
}

static void nx_unlock(uint32_t *lock) { NX_STORE_RELEASE(lock, 0u); }

/* R2: the fields are worth nothing until R5 has seen the same generation. */
static inline void nx_copy_hot(const nx_hot *hot, const nx_found *found, nx_handle *handle) {
  handle->offset = 64ull * NX_LOAD(&hot->place);
  handle->segment = NX_LOAD(&hot->segment);
  handle->length = NX_LOAD(&hot->length);
  handle->tokens = NX_LOAD(&hot->tokens);
  handle->bucket = (uint32_t)found->bucket;
  handle->generation = found->generation;
}

static inline bool nx_stands(const nx_table *table, const nx_handle *handle) {
  return NX_LOAD(&table->hot[handle->bucket].generation) == handle->generation;
}

/* A bit that is set already costs no write, so its line stays in every client's cache. */
static inline void nx_mark(uint64_t *touch, uint32_t bucket) {
  uint64_t bit = 1ull << (bucket % 64);
  if (touch == NULL || (NX_LOAD(&touch[bucket / 64]) & bit) != 0) return;
  __atomic_fetch_or(&touch[bucket / 64], bit, __ATOMIC_RELAXED);
}

/* R3 to R5 for up to NX_BLOCK handles under one fence; gives the leading ones that hold, or NX_E_PINS_FULL. */
static int64_t nx_pin_block(nx_reader *reader, nx_handle *handles, uint32_t n) {
  nx_hand *hand = reader->hand;
  uint32_t places[NX_BLOCK];
  if (n == 0) return 0;
  nx_lock(&hand->lock);
  bool room = nx_pool_take(&hand->pool, places, n);
  nx_unlock(&hand->lock);
  if (!room) return NX_E_PINS_FULL;
  for (uint32_t i = 0; i < n; i++) {
    handles[i].pin = places[i];
    handles[i].attachment = reader->attachment;
    NX_STORE_RELEASE(&hand->pool.words[places[i]], nx_pin_word(handles[i].bucket, handles[i].generation));
  }
  NX_READER_FENCE();
  uint32_t held = 0;
  for (; held < n && nx_stands(&reader->table, &handles[held]); held++) nx_mark(reader->touch, handles[held].bucket);
  if (held == n) return n;
  nx_lock(&hand->lock);
  for (uint32_t i = held; i < n; i++) nx_pool_return(&hand->pool, places[i]);
  nx_unlock(&hand->lock);
  return held;
}

/* A hint for the statistics; threads may lose each other's counts. */
static inline void nx_count(uint64_t *counter, uint64_t by) { NX_STORE(counter, NX_LOAD(counter) + by); }

/* R1 and R2 for a block; gives the leading LIVE ones. */
static inline uint32_t nx_find_block(const nx_block *block, const nx_table *table, const uint64_t *touch,
                                     const void *keys, nx_handle *handles) {
  uint32_t i = 0;
  for (nx_found found; i < block->size; i++) {
    if (nx_search_block(block, table, keys, i, &found) != NX_PRESENT) break;
    nx_copy_hot(&table->hot[found.bucket], &found, &handles[i]);
    if (touch != NULL) __builtin_prefetch(&touch[found.bucket / 64], 1);
  }
  return i;
}

int64_t nx_pin(nx_reader *reader, const void *keys, size_t n, nx_handle *handles) {
  int code = nx_gate(reader);
  if (code != NX_OK) return code;
  nx_pin_header *counts = reader->hand->pool.header;
  nx_walk walk;
  size_t pinned = 0;
  nx_walk_open(&walk, &reader->table, keys, n);
  for (const nx_block *block; (block = nx_walk_next(&walk)) != NULL && pinned == block->start;) {
    uint32_t live = nx_find_block(block, &reader->table, reader->touch, keys, handles + pinned);
    int64_t held = nx_pin_block(reader, handles + pinned, live);
    if (held < 0) {
      nx_unpin(reader, handles, pinned);
      nx_count(&counts->full, 1);
      return held;
    }
    pinned += (size_t)held;
  }
  nx_count(&counts->hits, pinned);
  if (pinned < n) nx_count(&counts->misses, n - pinned);
  return (int64_t)pinned;
}

int nx_where(nx_reader *reader, const void *key, uint32_t *segment) {
  int code = nx_gate(reader);
  if (code != NX_OK) return code;
  nx_found found;
  nx_handle handle;
  if (nx_search(&reader->table, key, nx_home(key, reader->table.bucket_count), &found) != NX_PRESENT) return NX_E_STALE;
  nx_copy_hot(&reader->table.hot[found.bucket], &found, &handle);
  __atomic_thread_fence(__ATOMIC_ACQUIRE); /* the copy before the word is read again */
  if (!nx_stands(&reader->table, &handle)) return NX_E_STALE;
  *segment = handle.segment;
  return NX_OK;
}

static bool nx_is_pinned(const nx_reader *reader, const nx_handle *handle) {
  const nx_pin_pool *pool = &reader->hand->pool;
  return handle->attachment == reader->attachment && handle->pin < pool->capacity &&
         handle->bucket < reader->table.bucket_count &&
         NX_LOAD(&pool->words[handle->pin]) == nx_pin_word(handle->bucket, handle->generation);
}

int nx_unpin(nx_reader *reader, const nx_handle *handles, size_t n) {
  nx_hand *hand = reader->hand;
  if (hand->pool.capacity == 0) return NX_E_FORKED;
  int code = NX_OK;
  nx_lock(&hand->lock);
  for (size_t i = 0; i < n; i++) {
    if (nx_is_pinned(reader, &handles[i])) nx_pool_return(&hand->pool, handles[i].pin);
    else code = NX_E_STALE;
  }
  nx_unlock(&hand->lock);
  return code;
}

int64_t nx_validate(nx_reader *reader, const nx_handle *handles, size_t n) {
  if (reader->hand->pool.capacity == 0) return NX_E_FORKED;
  size_t i = 0;
  for (; i < n && nx_is_pinned(reader, &handles[i]); i++) {
    uint64_t now = NX_LOAD_ACQUIRE(&reader->table.hot[handles[i].bucket].generation);
    bool readable = NX_STATE(now) == NX_LIVE || NX_STATE(now) == NX_RETIRING;
    if (!readable || NX_INCARNATION(now) != NX_INCARNATION(handles[i].generation)) break;
  }
  return (int64_t)i;
}

void nx_touch(nx_reader *reader, const nx_handle *handles, size_t n) {
  if (reader->hand->pool.capacity == 0) return;
  for (size_t i = 0; i < n; i++)
    if (handles[i].bucket < reader->table.bucket_count) nx_mark(reader->touch, handles[i].bucket);
}

static bool nx_copy_segment(const nx_table *table, uint32_t number, nx_segment *out) {
  const nx_segment_row *row = &table->directory[number];
  if (NX_LOAD_ACQUIRE(&row->state) != 1) return false;
  nx_segment_row copy;
  nx_load_words(&copy, row, sizeof copy);
  __atomic_thread_fence(__ATOMIC_ACQUIRE);
  if (NX_LOAD(&row->state) != 1 || copy.seal != nx_segment_seal(&copy)) return false;
  *out = (nx_segment){copy.segment,       copy.arena, copy.slot_count, copy.slot_bytes, copy.page_bytes,
                      copy.segment_bytes, {0}};
  memcpy(out->digest, copy.digest, sizeof out->digest);
  return true;
}

int nx_find_segment(nx_reader *reader, uint32_t segment, nx_segment *out) {
  bool there = nx_copy_segment(&reader->table, segment % reader->table.directory_capacity, out);
  return there && out->segment == segment ? NX_OK : NX_E_STALE;
}
