/* Owns the pin array: the client's free list over it, and the daemon's distrustful view of it.
 * Knows bucket numbers, no entries. */

static inline uint64_t nx_pin_word(uint64_t bucket, uint64_t generation) {
  return (NX_INCARNATION(generation) << 32) | (uint32_t)(bucket + 1);
}

uint64_t nx_pin_bytes(uint32_t capacity) { return NX_PIN_HEADER_BYTES + 8ull * capacity; }

int nx_pin_format(void *memory, size_t bytes, uint64_t index_id, uint64_t session) {
  if (memory == NULL || bytes < nx_pin_bytes(1)) return NX_E_ARGUMENT;
  uint64_t capacity = (bytes - NX_PIN_HEADER_BYTES) / 8;
  if (capacity > UINT32_MAX) return NX_E_ARGUMENT;
  nx_pin_header *header = memory;
  *header = (nx_pin_header){.layout_version = NX_LAYOUT_VERSION,
                            .header_bytes = NX_PIN_HEADER_BYTES,
                            .total_bytes = nx_pin_bytes((uint32_t)capacity),
                            .index_id = index_id,
                            .session = session,
                            .capacity = (uint32_t)capacity};
  NX_STORE_RELEASE(&header->magic, NX_PIN_MAGIC);
  return NX_OK;
}

/* ---- the client's side: a stack of returned words above which lie those never used. Under the reader's lock. ---- */

typedef struct nx_pin_pool {
  nx_pin_header *header;
  uint64_t *words;
  uint32_t *returned;
  uint32_t returned_count;
  uint32_t fresh; /* words [fresh, capacity) were never used */
  uint32_t capacity;
} nx_pin_pool;

static int nx_pool_open(nx_pin_pool *pool, void *memory, size_t bytes) {
  if (memory == NULL || (uintptr_t)memory % 64 != 0) return NX_E_ARGUMENT;
  if (bytes < nx_pin_bytes(1)) return NX_E_BOUNDS;
  nx_pin_header *header = memory;
  if (header->magic != NX_PIN_MAGIC) return NX_E_MAGIC;
  if (header->layout_version != NX_LAYOUT_VERSION) return NX_E_VERSION;
  uint32_t capacity = header->capacity;
  if (header->header_bytes != NX_PIN_HEADER_BYTES || capacity == 0 || nx_pin_bytes(capacity) > bytes)
    return NX_E_BOUNDS;
  if (header->high_water != 0) return NX_E_ATTACHED; /* with a free list of its own */
  uint32_t *returned = malloc(sizeof *returned * capacity);
  if (returned == NULL) return NX_E_SYSTEM;
  *pool = (nx_pin_pool){header, (uint64_t *)(void *)((char *)memory + NX_PIN_HEADER_BYTES), returned, 0, 0, capacity};
  return NX_OK;
}

static inline bool nx_pool_take(nx_pin_pool *pool, uint32_t *places, uint32_t n) {
  if (n > pool->returned_count + (pool->capacity - pool->fresh)) return false;
  uint32_t old = n < pool->returned_count ? n : pool->returned_count;
  for (uint32_t i = 0; i < old; i++) places[i] = pool->returned[--pool->returned_count];
  for (uint32_t i = old; i < n; i++) places[i] = pool->fresh++;
  if (old < n)
    NX_STORE(&pool->header->high_water, (uint64_t)pool->fresh); /* rule 4: before any of these words is set */
  return true;
}

/* Ends the pin; the release store is rule 3. */
static inline void nx_pool_return(nx_pin_pool *pool, uint32_t place) {
  NX_STORE_RELEASE(&pool->words[place], 0);
  if (pool->returned_count < pool->capacity) pool->returned[pool->returned_count++] = place;
}

/* ---- the daemon's side: whatever the bytes say, only `capacity`, taken from the object's size, bounds the scan. ---- */

struct nx_pins {
  const nx_pin_header *header;
  const uint64_t *words;
  uint64_t capacity;
};

int nx_pins_open(nx_pins **out, const void *memory, size_t bytes) {
  if (memory == NULL || (uintptr_t)memory % 64 != 0) return NX_E_ARGUMENT;
  if (bytes < nx_pin_bytes(1)) return NX_E_BOUNDS;
  nx_pins *pins = malloc(sizeof *pins);
  if (pins == NULL) return NX_E_SYSTEM;
  *pins = (nx_pins){memory, (const uint64_t *)(const void *)((const char *)memory + NX_PIN_HEADER_BYTES),
                    (bytes - NX_PIN_HEADER_BYTES) / 8};
  *out = pins;
  return NX_OK;
}

void nx_pins_close(nx_pins *pins) { free(pins); }

static uint64_t nx_pins_used(const nx_pins *pins) {
  uint64_t high = NX_LOAD_ACQUIRE(&pins->header->high_water);
  return high < pins->capacity ? high : pins->capacity;
}

uint64_t nx_pins_held(const nx_pins *pins) {
  uint64_t held = 0;
  for (uint64_t i = 0, used = nx_pins_used(pins); i < used; i++) held += NX_LOAD_ACQUIRE(&pins->words[i]) != 0;
  return held;
}

uint64_t nx_pins_buckets(const nx_pins *pins, uint32_t *buckets, uint64_t limit) {
  uint64_t found = 0;
  for (uint64_t i = 0, used = nx_pins_used(pins); i < used && found < limit; i++) {
    uint32_t cell = (uint32_t)NX_LOAD_ACQUIRE(&pins->words[i]);
    if (cell != 0) buckets[found++] = cell - 1;
  }
  return found;
}

void nx_pins_counts(const nx_pins *pins, uint64_t counts[3]) {
  counts[0] = NX_LOAD(&pins->header->hits);
  counts[1] = NX_LOAD(&pins->header->misses);
  counts[2] = NX_LOAD(&pins->header->full);
}
