/* Owns what both sides share: atomics, sealing, the check of a header against the real size of its object.
 * Knows neither pins nor policy. */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define NX_CELL_MAX 0xfffffffeull /* buckets: bucket + 1 fits half a pin word */
#define NX_STATE(generation) ((unsigned)((generation)&3u))
#define NX_INCARNATION(generation) ((generation) >> 2)

#define NX_LOAD(place) __atomic_load_n((place), __ATOMIC_RELAXED)
#define NX_LOAD_ACQUIRE(place) __atomic_load_n((place), __ATOMIC_ACQUIRE)
#define NX_STORE(place, value) __atomic_store_n((place), (value), __ATOMIC_RELAXED)
#ifdef NX_WITHOUT_RELEASE
#define NX_STORE_RELEASE(place, value) NX_STORE(place, value)
#else
#define NX_STORE_RELEASE(place, value) __atomic_store_n((place), (value), __ATOMIC_RELEASE)
#endif
#ifdef NX_WITHOUT_READER_FENCE
#define NX_READER_FENCE() __atomic_signal_fence(__ATOMIC_SEQ_CST)
#else
#define NX_READER_FENCE() __atomic_thread_fence(__ATOMIC_SEQ_CST)
#endif
#ifdef NX_WITHOUT_WRITER_FENCE
#define NX_WRITER_FENCE() __atomic_signal_fence(__ATOMIC_SEQ_CST)
#else
#define NX_WRITER_FENCE() __atomic_thread_fence(__ATOMIC_SEQ_CST)
#endif

/* Word i of a key that may lie anywhere. */
static inline uint64_t nx_word(const void *key, unsigned i) {
  uint64_t word;
  memcpy(&word, (const char *)key + 8 * i, sizeof word);
  return word;
}

/* Keys are hashes already; the first multiplication spreads hand-made ones, the second scales to any bucket count. */
static inline uint64_t nx_home(const void *key, uint64_t bucket_count) {
  uint64_t hash = (nx_word(key, 0) + nx_word(key, 1) + nx_word(key, 2) + nx_word(key, 3)) * 0x9e3779b97f4a7c15ull;
  return ((hash >> 32) * bucket_count) >> 32;
}

static inline uint64_t nx_mix(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * 0xff51afd7ed558ccdull;
  return hash ^ (hash >> 32);
}

/* Tells torn bytes from whole ones; no defence against an attacker, who cannot write here anyway. */
static uint64_t nx_seal(uint64_t hash, const void *bytes, size_t size) {
  for (size_t at = 0; at + 8 <= size; at += 8) {
    uint64_t word;
    memcpy(&word, (const char *)bytes + at, 8);
    hash = nx_mix(hash, word);
  }
  return nx_mix(hash, size);
}

static uint64_t nx_header_seal(const nx_index_header *header) {
  return nx_seal(1, header, offsetof(nx_index_header, seal));
}

static uint64_t nx_segment_seal(const nx_segment_row *row) {
  uint64_t hash = nx_mix(nx_mix(nx_mix(2, row->segment), row->arena), row->slot_count);
  hash = nx_seal(hash, &row->slot_bytes, offsetof(nx_segment_row, seal) - offsetof(nx_segment_row, slot_bytes));
  return nx_seal(hash, row->digest, sizeof row->digest);
}

/* Over everything of an entry but its state and `owner`. */
static uint64_t nx_entry_seal(uint64_t incarnation, const nx_hot *hot, const nx_cold *cold) {
  uint64_t hash = nx_seal(incarnation, hot->key, sizeof *hot - offsetof(nx_hot, key));
  return nx_seal(hash, cold, offsetof(nx_cold, owner));
}

static inline uint64_t nx_touch_words(uint64_t bucket_count) { return (bucket_count + 63) / 64; }

/* Rows that change under a reader are copied word by word, so that no access races in the sense of C11. */
static void nx_load_words(void *to, const void *shared, size_t bytes) {
  for (size_t i = 0; i < bytes / 8; i++) {
    uint64_t word = NX_LOAD((const uint64_t *)shared + i);
    memcpy((char *)to + 8 * i, &word, 8);
  }
}

static void nx_store_words(void *shared, const void *from, size_t bytes) {
  for (size_t i = 0; i < bytes / 8; i++) {
    uint64_t word;
    memcpy(&word, (const char *)from + 8 * i, 8);
    NX_STORE((uint64_t *)shared + i, word);
  }
}

/* A private, checked copy of where things are: nobody reads sizes from shared memory a second time. */
typedef struct nx_table {
  nx_index_header *header;
  nx_segment_row *directory;
  nx_hot *hot;
  nx_cold *cold;
  uint64_t bucket_count;
  uint64_t max_entries;
  uint64_t index_id;
  uint32_t directory_capacity;
} nx_table;

static bool nx_fits(uint64_t offset, uint64_t count, uint64_t row_bytes, uint64_t total) {
  return offset % 64 == 0 && offset >= NX_INDEX_HEADER_BYTES && offset <= total &&
         count <= (total - offset) / row_bytes;
}

static int nx_table_open(nx_table *table, const void *memory, size_t bytes) {
  if (memory == NULL || (uintptr_t)memory % 64 != 0) return NX_E_ARGUMENT;
  if (bytes < NX_INDEX_HEADER_BYTES) return NX_E_BOUNDS;
  nx_index_header h;
  memcpy(&h, memory, sizeof h);
  if (h.magic != NX_INDEX_MAGIC) return NX_E_MAGIC;
  if (h.layout_version != NX_LAYOUT_VERSION) return NX_E_VERSION;
  if (h.header_bytes != NX_INDEX_HEADER_BYTES || h.total_bytes > bytes || h.seal != nx_header_seal(&h) ||
      h.bucket_count < NX_REACH || h.bucket_count > NX_CELL_MAX || h.directory_capacity == 0 ||
      !nx_fits(h.directory_offset, h.directory_capacity, sizeof(nx_segment_row), h.total_bytes) ||
      !nx_fits(h.hot_offset, h.bucket_count, sizeof(nx_hot), h.total_bytes) ||
      !nx_fits(h.cold_offset, h.bucket_count, sizeof(nx_cold), h.total_bytes))
    return NX_E_BOUNDS;
  char *base = (char *)(uintptr_t)memory;
  *table = (nx_table){(nx_index_header *)(void *)base,
                      (nx_segment_row *)(void *)(base + h.directory_offset),
                      (nx_hot *)(void *)(base + h.hot_offset),
                      (nx_cold *)(void *)(base + h.cold_offset),
                      h.bucket_count,
                      h.max_entries,
                      h.index_id,
                      h.directory_capacity};
  return NX_OK;
}

static inline uint64_t nx_hop(const nx_table *table, uint64_t home, unsigned distance) {
  uint64_t bucket = home + distance;
  return bucket < table->bucket_count ? bucket : bucket - table->bucket_count;
}

static inline bool nx_same_key(const nx_hot *hot, const void *key) {
  return ((NX_LOAD(&hot->key[0]) ^ nx_word(key, 0)) | (NX_LOAD(&hot->key[1]) ^ nx_word(key, 1)) |
          (NX_LOAD(&hot->key[2]) ^ nx_word(key, 2)) | (NX_LOAD(&hot->key[3]) ^ nx_word(key, 3))) == 0;
}

/* ---- mappings: at a million entries a page walk costs as much as the cache miss, so huge pages are asked for ---- */

#define NX_HUGE ((size_t)2 << 20)
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* Linux 6.1; older kernels refuse it, and small pages do as well */
#endif

/* Maps at a 2 MiB boundary, without which no mapping has huge pages. */
static void *nx_map_aligned(int fd, size_t bytes, int protection) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE), whole = (bytes + page - 1) / page * page;
  char *start = mmap(NULL, whole + NX_HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (start == MAP_FAILED) return MAP_FAILED;
  size_t before = (NX_HUGE - (uintptr_t)start % NX_HUGE) % NX_HUGE;
  void *memory = mmap(start + before, bytes, protection, MAP_SHARED | MAP_FIXED, fd, 0);
  if (before != 0) munmap(start, before);
  munmap(start + before + whole, NX_HUGE - before);
  if (memory == MAP_FAILED) munmap(start + before, whole);
  return memory;
}

int nx_map(int fd, int writable, void **memory, size_t *bytes) {
  struct stat status;
  if (fstat(fd, &status) != 0) return NX_E_SYSTEM;
  if (status.st_size <= 0) return NX_E_BOUNDS;
  size_t size = (size_t)status.st_size;
  void *mapped = nx_map_aligned(fd, size, writable ? PROT_READ | PROT_WRITE : PROT_READ);
  if (mapped == MAP_FAILED) return NX_E_SYSTEM;
  int saved = errno;
  if (size >= NX_HUGE && madvise(mapped, size, MADV_HUGEPAGE) == 0) (void)madvise(mapped, size, MADV_COLLAPSE);
  errno = saved;
  *memory = mapped;
  *bytes = size;
  return NX_OK;
}

void nx_unmap(void *memory, size_t bytes) {
  if (memory != NULL) munmap(memory, bytes);
}

const char *nx_error(int code) {
  static const char *const sentences[] = {
      "no error",
      "an argument is not valid: see nexuskv.h",
      "a system call failed: see errno",
      "this is no NexusKV object: check which descriptor was passed",
      "made by a release with another layout: use one release on both sides, or restart the daemon with --fresh",
      "this object is truncated or contradicts itself: restart the daemon with --fresh if it was its index",
      "this object belongs to another index: attach anew",
      "the daemon no longer keeps this index up to date: attach anew",
      "this attachment was inherited through fork: attach anew in the child",
      "all pin words are in use: close hits that are no longer read, or start nexuskvd with a larger --pins",
      "this handle is not pinned",
      "the index is full here: evict entries, then try again",
      "already there",
      "not in the state that this step starts from",
      "this entry is torn",
      "the daemon said what this library does not understand: use the same release on both sides",
      "the daemon refused: see nx_client_reason",
      "the daemon did not answer in time: is it running?",
      "this page lies in a segment that is not mapped here: map it first",
      "this pin object already serves another attachment: ask the daemon for one of your own",
  };
  size_t known = sizeof sentences / sizeof *sentences;
  return code <= 0 && (size_t)-code < known ? sentences[-code] : "unknown error";
}

/* F_OFD locks belong to the open file description, not to the process: they need no pid and survive the daemon. */
int nx_owner_lock(int fd) {
  struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  if (fcntl(fd, F_OFD_SETLK, &whole) == 0) return NX_OK;
  return errno == EAGAIN || errno == EACCES ? NX_E_EXISTS : NX_E_SYSTEM;
}

int nx_owner_alive(int fd) {
  struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  if (fcntl(fd, F_OFD_GETLK, &whole) != 0) return NX_E_SYSTEM;
  return whole.l_type != F_UNLCK;
}
