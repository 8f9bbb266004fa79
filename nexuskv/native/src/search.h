/* Owns the search of the table: one key, and many with their cache misses overlapping. Reads alone; pins nothing.
 * It believes no number in the table: every bucket it touches is below the bucket count that nx_table_open checked.
 * */

#define NX_BLOCK 16u /* about as many cache misses as a core has under way at once; its pins share one fence */

typedef struct nx_found {
  uint64_t bucket;
  uint64_t generation;
} nx_found;

/* R1 and the first half of R2. NX_PRESENT: `found` was LIVE at R1. */
static inline unsigned nx_peek(const nx_table *table, const void *key, uint64_t bucket, nx_found *found) {
  static const uint8_t presence[4] = {NX_ABSENT, NX_BEING_WRITTEN, NX_PRESENT, NX_BEING_EVICTED};
  const nx_hot *hot = &table->hot[bucket];
  uint64_t generation = NX_LOAD_ACQUIRE(&hot->generation);
  *found = (nx_found){bucket, generation};
  return nx_same_key(hot, key) ? presence[NX_STATE(generation)] : (unsigned)NX_ABSENT;
}

/* A key may stand in several buckets, of which one at most is LIVE. */
static unsigned nx_search(const nx_table *table, const void *key, uint64_t home, nx_found *found) {
  unsigned seen = NX_ABSENT;
  for (uint64_t hops = NX_LOAD(&table->hot[home].hops); hops != 0; hops &= hops - 1) {
    unsigned presence = nx_peek(table, key, nx_hop(table, home, (unsigned)__builtin_ctzll(hops)), found);
    if (presence == NX_PRESENT) return presence;
    if (presence > seen) seen = presence;
  }
  return seen;
}

static inline const void *nx_key_at(const void *keys, size_t i) { return (const char *)keys + NX_KEY_BYTES * i; }

/* Keys that are looked for together, in three short loops: fetch their homes, fetch the rows to which the homes
 * point, compare. So the cache misses of a whole block overlap. */
typedef struct nx_block {
  size_t start;
  size_t size;
  uint32_t home[NX_BLOCK];
  uint32_t guess[NX_BLOCK]; /* the bucket where the key most likely is */
} nx_block;

static inline void nx_fetch_homes(nx_block *block, const nx_table *table, const void *keys) {
  for (size_t i = 0; i < block->size; i++) {
    block->home[i] = (uint32_t)nx_home(nx_key_at(keys, block->start + i), table->bucket_count);
    __builtin_prefetch(&table->hot[block->home[i]]);
  }
}

/* At home, or the first hop. No branch: which it is, is as good as random. A wrong guess costs time, no more. */
static inline void nx_fetch_rows(nx_block *block, const nx_table *table, const void *keys) {
  for (size_t i = 0; i < block->size; i++) {
    const nx_hot *hot = &table->hot[block->home[i]];
    uint64_t elsewhere = NX_LOAD(&hot->key[0]) != nx_word(nx_key_at(keys, block->start + i), 0);
    uint64_t hops = (NX_LOAD(&hot->hops) & ~elsewhere) | 1ull << 63;
    block->guess[i] = (uint32_t)nx_hop(table, block->home[i], (unsigned)__builtin_ctzll(hops));
    __builtin_prefetch(&table->hot[block->guess[i]]);
  }
}

/* Three blocks in flight: of the latest the homes are on their way, of the next the rows, and the oldest is
 * compared. */
typedef struct nx_walk {
  const nx_table *table;
  const void *keys;
  size_t n;
  size_t begun;
  unsigned turn;
  nx_block block[3];
} nx_walk;

static inline void nx_begin_block(nx_walk *walk, nx_block *block, size_t most) {
  block->start = walk->begun;
  block->size = walk->n - walk->begun < most ? walk->n - walk->begun : most;
  walk->begun += block->size;
  nx_fetch_homes(block, walk->table, walk->keys);
}

/* The first block is smaller, so that a miss at the first key has fetched little in vain. */
static inline void nx_walk_open(nx_walk *walk, const nx_table *table, const void *keys, size_t n) {
  walk->table = table;
  walk->keys = keys;
  walk->n = n;
  walk->begun = walk->turn = 0;
  nx_begin_block(walk, &walk->block[0], NX_BLOCK / 2);
  nx_begin_block(walk, &walk->block[1], NX_BLOCK);
  nx_fetch_rows(&walk->block[0], table, keys);
}

/* NULL at the end of the keys. */
static inline const nx_block *nx_walk_next(nx_walk *walk) {
  unsigned turn = walk->turn++;
  const nx_block *block = &walk->block[turn % 3];
  if (block->size == 0) return NULL;
  nx_begin_block(walk, &walk->block[(turn + 2) % 3], NX_BLOCK);
  nx_fetch_rows(&walk->block[(turn + 1) % 3], walk->table, walk->keys);
  return block;
}

static inline unsigned nx_search_block(const nx_block *block, const nx_table *table, const void *keys, size_t i,
                                       nx_found *found) {
  const void *key = nx_key_at(keys, block->start + i);
  if (nx_peek(table, key, block->guess[i], found) == NX_PRESENT) return NX_PRESENT;
  nx_found slow = {0, 0};
  unsigned presence = nx_search(table, key, block->home[i], &slow);
  *found = slow; /* a copy, so that `found` can stay in registers */
  return presence;
}

/* Without a pin: the key was compared within one incarnation if the word is still the same after the comparison. */
static inline unsigned nx_glance(const nx_block *block, const nx_table *table, const void *keys, size_t i) {
  nx_found found;
  unsigned presence = nx_search_block(block, table, keys, i, &found);
  if (presence != NX_PRESENT) return presence;
  __atomic_thread_fence(__ATOMIC_ACQUIRE);
  return NX_LOAD(&table->hot[found.bucket].generation) == found.generation ? NX_PRESENT : NX_BEING_EVICTED;
}
