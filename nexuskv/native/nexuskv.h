/* nexuskv.h: the shared-memory index of NexusKV, for C11 and C++17.
 *
 * This header owns the layout of the three shared objects by which a process finds and pins pages without the daemon,
 * and the calls that read and write them. It knows no descriptor kinds and no policy: which page goes first is the
 * daemon's business. Compile nexuskv.c into your program; there is nothing to link. An engine needs nx_client_* alone
 * (the last section but two); the rest is what the Python client and the daemon are made of.
 *
 * All integers are little-endian and of fixed width. Offsets are from the start of the object. An address never
 * stands in shared memory. Every process maps the objects wherever it likes.
 *
 *   INDEX, one a tenant; the daemon writes, everybody else maps it read-only
 *   +---------------+ 0
 *   | header        |   struct nx_index_header, one 4 KiB page
 *   +---------------+ directory_offset
 *   | directory     |   struct nx_segment_row [directory_capacity], row = segment id % capacity
 *   +---------------+ hot_offset
 *   | hot rows      |   struct nx_hot  [bucket_count], one cache line each: all that a hit needs
 *   +---------------+ cold_offset
 *   | cold rows     |   struct nx_cold [bucket_count], one cache line each: what only the daemon needs
 *   +---------------+ total_bytes
 *
 *   TOUCH, one a tenant; its clients write: one bit a bucket, in words of 64; set = used since the daemon looked last
 *
 *   PINS, one a connection; its client writes, the daemon reads and believes nothing
 *   +---------------+ 0
 *   | header        |   struct nx_pin_header, 128 bytes
 *   +---------------+ 128
 *   | words         |   uint64_t [capacity]: 0 = free, else low half = bucket + 1, high half = low half of the incarnation
 *   +---------------+
 *
 * An entry lives in bucket number b: hot row b and cold row b. Its key has a home bucket h; the entry stands at h
 * or at one of the 63 buckets after it (wrapping), wherever a bucket was free, and never moves. Bit i of hot row
 * h's `hops` says that bucket h + i holds a key whose home is h. So a hit touches one cache line (three times in
 * four) or two, and a miss one; there are no tombstones.
 *
 * The generation word of a bucket is (incarnation << 2 | state). The incarnation grows each time the bucket gets a
 * new entry, so one value of the word never comes back, except by revive and then for the very same page. Even states
 * are at rest, odd ones are in the daemon's hands:
 *
 *   EMPTY 0 --reserve--> WRITING 1 --commit--> LIVE 2 --retire--> RETIRING 3 --reclaim--> EMPTY 0
 *                        WRITING 1 --abort---------------------------------------------> EMPTY 0
 *                                             LIVE 2 <--revive-- RETIRING 3
 *
 * Only LIVE is ever a hit. All fields but the word itself change in WRITING alone (`hops` is not the entry's own, and
 * `owner` is one word that the daemon alone reads, changed by one store: see NX_TIED).
 */
#ifndef NEXUSKV_H
#define NEXUSKV_H

#include <stddef.h>
#include <stdint.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "nexuskv: the shared layout is little-endian, and so must the host be"
#endif

#ifdef __cplusplus
#define NX_STATIC_ASSERT(what, why) static_assert(what, why)
extern "C" {
#else
#define NX_STATIC_ASSERT(what, why) _Static_assert(what, why)
#endif

#define NX_LAYOUT_VERSION 2u
#define NX_RELEASE "0.1.0"
#define NX_KEY_BYTES 32u
#define NX_NAME_BYTES 64u
#define NX_REACH \
  64u /* buckets from home where an entry may stand; at a load of 0.4 they are all full once in 1e9 times */

enum nx_state { NX_EMPTY = 0, NX_WRITING = 1, NX_LIVE = 2, NX_RETIRING = 3 };

/* Every call that can fail gives one of these (or a count >= 0); nx_error(code) is the sentence for a human. */
enum nx_code {
  NX_OK = 0,
  NX_E_ARGUMENT = -1,  /* the caller's bug */
  NX_E_SYSTEM = -2,    /* see errno */
  NX_E_MAGIC = -3,     /* not such an object */
  NX_E_VERSION = -4,   /* layout of another release */
  NX_E_BOUNDS = -5,    /* truncated, or sizes that contradict each other */
  NX_E_FOREIGN = -6,   /* pin object of another index */
  NX_E_MOVED = -7,     /* the daemon has left this index: attach anew */
  NX_E_FORKED = -8,    /* inherited through fork: attach anew */
  NX_E_PINS_FULL = -9, /* no free pin word: close hits, or ask for a larger pin object */
  NX_E_STALE = -10,    /* a handle that is not pinned (any more) */
  NX_E_FULL = -11,     /* max_entries reached, or no bucket free within reach of its home: evict, then try again */
  NX_E_EXISTS = -12,   /* the key is LIVE or WRITING */
  NX_E_STATE = -13,    /* the bucket is not in the state that this step starts from */
  NX_E_TORN = -14,     /* recovery: the entry's seal or bounds do not hold */
  NX_E_PROTOCOL = -15, /* the daemon said what this library does not understand */
  NX_E_REFUSED = -16,  /* the daemon refused; nx_client_reason has its sentence */
  NX_E_TIMEOUT = -17,  /* the daemon did not answer in time */
  NX_E_UNMAPPED = -18, /* the page lies in a segment that is not mapped here yet */
  NX_E_ATTACHED = -19  /* this pin object already serves an attachment */
};

/* ---- layout ------------------------------------------------------------------------------------------------------ */

#define NX_INDEX_MAGIC 0x315844494b58454eull /* "NEXKIDX1" */
#define NX_PIN_MAGIC 0x314e49504b58454eull   /* "NEXKPIN1" */
#define NX_INDEX_HEADER_BYTES 4096u
#define NX_PIN_HEADER_BYTES 128u

typedef struct nx_index_header {
  uint64_t magic;
  uint32_t layout_version;
  uint32_t header_bytes;
  uint64_t total_bytes;
  uint64_t index_id; /* random; pin objects carry it, so that none is used with another index */
  uint64_t bucket_count;
  uint64_t max_entries; /* two fifths of the buckets */
  uint32_t directory_capacity;
  uint32_t pad0;
  uint64_t directory_offset;
  uint64_t hot_offset;
  uint64_t cold_offset;
  char release[NX_NAME_BYTES / 2]; /* of the daemon that made it */
  uint64_t seal;                   /* over all of the above */
  uint64_t pad1;
  /* from here on the daemon changes things while it runs */
  uint64_t boot_epoch; /* 128: atomic; another value = another daemon has taken over */
  uint32_t moved;      /* 136: atomic; not 0 = nothing here is kept up to date any more: attach anew */
  uint32_t segment_count;
  uint64_t occupied;     /* WRITING + LIVE + RETIRING */
  uint64_t live;         /* LIVE */
  uint64_t tick;         /* of the newest entry */
  uint64_t torn_dropped; /* by all recoveries of this object */
  uint64_t pad2[2];
  char instance[NX_NAME_BYTES]; /* 192: zero-terminated */
  char tenant[NX_NAME_BYTES];   /* 256 */
} nx_index_header;

/* One data segment. `state` is written last, by a release store. */
typedef struct nx_segment_row {
  uint32_t state; /* 0 = free, 1 = in use */
  uint32_t segment;
  uint32_t arena;
  uint32_t slot_count;
  uint64_t slot_bytes;
  uint64_t page_bytes;
  uint64_t segment_bytes; /* size of the object */
  uint64_t seal;          /* over all but `state` */
  uint64_t pad[2];
  uint8_t digest[32]; /* of the descriptor */
  uint8_t pad1[32];
} nx_segment_row;

typedef struct nx_hot {
  uint64_t generation; /* atomic: incarnation << 2 | state */
  uint64_t hops;       /* atomic: bit i = bucket b + i holds a key whose home is b */
  uint64_t key[4];
  uint32_t place; /* offset of the page in its segment, in units of 64 bytes */
  uint32_t segment;
  uint32_t length; /* bytes */
  uint32_t tokens; /* of them valid */
} nx_hot;

typedef struct nx_cold {
  uint64_t parent[4]; /* key of the page before; zeros = the first of its chain */
  uint64_t checksum;  /* of the page; 0 = none */
  uint64_t tick;      /* order of publication */
  uint64_t owner;     /* the session that reserved it, or a tie (NX_TIED) */
  uint64_t seal;      /* over incarnation, hot row from `key` on, cold row up to `owner` */
} nx_cold;

/* The word `owner`. Without NX_TIED: the session that reserved the entry; while WRITING it may still be writing the page.
 * With it: the entry belongs to a boundary of a group, and its writer has finished.
 *
 *   63   62          40 39                    0
 *   +---+--------------+-----------------------+
 *   | 1 | count        | number                |   count entries have this number, all there or none; 0 = being changed
 *   +---+--------------+-----------------------+
 *
 * The seal leaves this word out, so that one store changes it in a LIVE entry: whoever dies before or after it leaves
 * an entry that is whole. What a daemon concludes from the words of an earlier one is its own affair. */
#define NX_TIED (1ull << 63)

typedef struct nx_pin_header {
  uint64_t magic;
  uint32_t layout_version;
  uint32_t header_bytes;
  uint64_t total_bytes;
  uint64_t index_id;
  uint64_t session;
  uint32_t capacity;
  uint32_t pad0;
  uint64_t pad1[2];
  uint64_t high_water; /* 64: atomic; words at and above it were never used */
  uint64_t hits;       /* hints for the statistics, written by the client */
  uint64_t misses;
  uint64_t full; /* refused for want of a pin word */
  uint64_t pad2[4];
} nx_pin_header;

#define NX_AT(type, field, offset) \
  NX_STATIC_ASSERT(offsetof(type, field) == (offset), "layout: " #type "." #field " must not move")
#define NX_SIZE(type, bytes) \
  NX_STATIC_ASSERT(sizeof(type) == (bytes), "layout: the size of " #type " must not change")
NX_AT(nx_index_header, magic, 0);
NX_AT(nx_index_header, layout_version, 8);
NX_AT(nx_index_header, header_bytes, 12);
NX_AT(nx_index_header, total_bytes, 16);
NX_AT(nx_index_header, index_id, 24);
NX_AT(nx_index_header, bucket_count, 32);
NX_AT(nx_index_header, max_entries, 40);
NX_AT(nx_index_header, directory_capacity, 48);
NX_AT(nx_index_header, directory_offset, 56);
NX_AT(nx_index_header, hot_offset, 64);
NX_AT(nx_index_header, cold_offset, 72);
NX_AT(nx_index_header, release, 80);
NX_AT(nx_index_header, seal, 112);
NX_AT(nx_index_header, boot_epoch, 128);
NX_AT(nx_index_header, moved, 136);
NX_AT(nx_index_header, segment_count, 140);
NX_AT(nx_index_header, occupied, 144);
NX_AT(nx_index_header, live, 152);
NX_AT(nx_index_header, tick, 160);
NX_AT(nx_index_header, torn_dropped, 168);
NX_AT(nx_index_header, instance, 192);
NX_AT(nx_index_header, tenant, 256);
NX_SIZE(nx_index_header, 320);
NX_AT(nx_segment_row, state, 0);
NX_AT(nx_segment_row, segment, 4);
NX_AT(nx_segment_row, arena, 8);
NX_AT(nx_segment_row, slot_count, 12);
NX_AT(nx_segment_row, slot_bytes, 16);
NX_AT(nx_segment_row, page_bytes, 24);
NX_AT(nx_segment_row, segment_bytes, 32);
NX_AT(nx_segment_row, seal, 40);
NX_AT(nx_segment_row, digest, 64);
NX_SIZE(nx_segment_row, 128);
NX_AT(nx_hot, generation, 0);
NX_AT(nx_hot, hops, 8);
NX_AT(nx_hot, key, 16);
NX_AT(nx_hot, place, 48);
NX_AT(nx_hot, segment, 52);
NX_AT(nx_hot, length, 56);
NX_AT(nx_hot, tokens, 60);
NX_SIZE(nx_hot, 64);
NX_AT(nx_cold, parent, 0);
NX_AT(nx_cold, checksum, 32);
NX_AT(nx_cold, tick, 40);
NX_AT(nx_cold, owner, 48);
NX_AT(nx_cold, seal, 56);
NX_SIZE(nx_cold, 64);
NX_AT(nx_pin_header, magic, 0);
NX_AT(nx_pin_header, layout_version, 8);
NX_AT(nx_pin_header, header_bytes, 12);
NX_AT(nx_pin_header, total_bytes, 16);
NX_AT(nx_pin_header, index_id, 24);
NX_AT(nx_pin_header, session, 32);
NX_AT(nx_pin_header, capacity, 40);
NX_AT(nx_pin_header, high_water, 64);
NX_AT(nx_pin_header, hits, 72);
NX_AT(nx_pin_header, misses, 80);
NX_AT(nx_pin_header, full, 88);
NX_SIZE(nx_pin_header, 128);

/* ---- what the calls take and give -------------------------------------------------------------------------------- */

/* One pinned page: readable at segment[offset, offset + length) until nx_unpin. */
typedef struct nx_handle {
  uint64_t offset;
  uint64_t generation; /* with bucket: this very entry, and no later one of the same key */
  uint32_t segment;
  uint32_t length;
  uint32_t tokens;
  uint32_t bucket;
  uint32_t pin;        /* place in the pin array */
  uint32_t attachment; /* of this process */
} nx_handle;

/* One entry as the daemon writes it and as recovery gives it back. */
typedef struct nx_record {
  uint8_t key[NX_KEY_BYTES];
  uint8_t parent[NX_KEY_BYTES]; /* zeros = first of its chain */
  uint64_t offset;              /* a multiple of 64 */
  uint64_t checksum;
  uint64_t tick; /* 0 on writing = the next one */
  uint64_t owner;
  uint32_t segment;
  uint32_t length;
  uint32_t tokens;
  uint32_t bucket; /* given by the call */
  int32_t status;  /* given by the call: nx_code when writing, nx_state when reading */
} nx_record;

typedef struct nx_segment {
  uint32_t segment;
  uint32_t arena;
  uint32_t slot_count;
  uint64_t slot_bytes; /* a multiple of 64 */
  uint64_t page_bytes;
  uint64_t segment_bytes;
  uint8_t digest[32];
} nx_segment;

typedef struct nx_index_params {
  uint64_t max_entries;
  uint64_t boot_epoch;
  uint64_t index_id; /* random, not 0 */
  uint32_t directory_capacity;
  const char *instance;
  const char *tenant;
} nx_index_params;

typedef struct nx_recovery {
  uint64_t live;
  uint64_t retiring; /* were being evicted; reclaim them as soon as nobody pins them */
  uint64_t writing;  /* their slots may still be written by `owner`: free them when that session is gone */
  uint64_t torn;     /* dropped */
  uint64_t segments_dropped;
} nx_recovery;

/* What a key's status is, as far as shared memory tells; of several buckets with the same key the highest counts. */
enum nx_presence { NX_ABSENT = 0, NX_BEING_EVICTED = 1, NX_BEING_WRITTEN = 2, NX_PRESENT = 3 };

typedef struct nx_reader nx_reader; /* one attachment of one process; its calls may come from any thread */
typedef struct nx_writer nx_writer; /* the daemon's side; one thread at a time */
typedef struct nx_pins nx_pins;     /* the daemon's view of one pin object */

const char *nx_error(int code);

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* Maps the three objects (touch_fd may be -1); one attachment a pin object. The descriptors may be closed
 * afterwards: a mapping holds its open file description, and so nx_owner_lock's lock lasts until nx_detach. A child
 * of fork must attach anew; until then its calls give NX_E_FORKED. NX_E_MAGIC, NX_E_VERSION, NX_E_BOUNDS,
 * NX_E_FOREIGN, NX_E_SYSTEM. */
int nx_attach(nx_reader **out, int index_fd, int touch_fd, int pin_fd);
/* The same over memory that stays the caller's; every access is bounded by the three sizes. */
int nx_attach_memory(nx_reader **out, const void *index, size_t index_bytes, void *touch, size_t touch_bytes,
                     void *pins, size_t pin_bytes);
void nx_detach(nx_reader *reader);

uint64_t nx_epoch(const nx_reader *reader); /* of the daemon that serves the index now; 0 once it has moved */
uint64_t nx_session(const nx_reader *reader);
/* How many leading keys of n are resident; nothing is pinned. keys: n x 32 bytes. */
int64_t nx_lookup(nx_reader *reader, const void *keys, size_t n);
/* Each key's nx_presence. */
int nx_status(nx_reader *reader, const void *keys, size_t n, uint8_t *presence);
/* The segment of a resident page; nothing is pinned or touched. NX_E_STALE: not resident. */
int nx_where(nx_reader *reader, const void *key, uint32_t *segment);
/* Pins the resident leading run of n keys; gives its length. NX_E_PINS_FULL pins nothing. */
int64_t nx_pin(nx_reader *reader, const void *keys, size_t n, nx_handle *handles);
/* Ends pins; NX_E_STALE if some were not pinned (the others are ended all the same). */
int nx_unpin(nx_reader *reader, const nx_handle *handles, size_t n);
/* How many leading handles still hold: their pin word stands, and their entry is the one that was pinned. */
int64_t nx_validate(nx_reader *reader, const nx_handle *handles, size_t n);
/* Says that these pages were used. nx_pin has done it already. */
void nx_touch(nx_reader *reader, const nx_handle *handles, size_t n);
/* The directory's row of a segment. NX_E_STALE: there is none. */
int nx_find_segment(nx_reader *reader, uint32_t segment, nx_segment *out);

/* Where a page is in a mapping of its segment, or NULL if it is not wholly inside. */
static inline const void *nx_page(const void *mapping, size_t mapping_bytes, const nx_handle *handle) {
  if (handle->offset > mapping_bytes || handle->length > mapping_bytes - handle->offset) return NULL;
  return (const char *)mapping + handle->offset;
}

/* ---- writing: the daemon ----------------------------------------------------------------------------------------- */

int nx_index_bytes(const nx_index_params *params, uint64_t *bytes);
int nx_touch_bytes(const nx_index_params *params, uint64_t *bytes);
uint64_t nx_pin_bytes(uint32_t capacity);
/* Formats a zeroed object. */
int nx_index_format(void *memory, size_t bytes, const nx_index_params *params);
int nx_pin_format(void *memory, size_t bytes, uint64_t index_id, uint64_t session);

/* touch may be NULL. The memory stays the caller's and must outlive the writer. */
int nx_writer_open(nx_writer **out, void *index, size_t index_bytes, void *touch, size_t touch_bytes);
void nx_writer_close(nx_writer *writer);
const nx_index_header *nx_writer_header(const nx_writer *writer);
void nx_set_epoch(nx_writer *writer, uint64_t boot_epoch);
void nx_set_moved(nx_writer *writer);

/* NX_E_FULL: the row that the id maps to is taken; use the next id. */
int nx_segment_add(nx_writer *writer, const nx_segment *segment);
int nx_segment_remove(nx_writer *writer, uint32_t segment);
/* Rows in use, up to `limit` of them; gives their number. */
int64_t nx_segments(nx_writer *writer, nx_segment *out, size_t limit);

/* Each gives how many of n succeeded; records have their own status. */
int64_t nx_reserve(nx_writer *writer, nx_record *records, size_t n);
int64_t nx_publish(nx_writer *writer, nx_record *records, size_t n); /* reserve and commit in one */
int64_t nx_commit(nx_writer *writer, const uint32_t *buckets, const uint64_t *checksums, size_t n);
int64_t nx_abort(nx_writer *writer, const uint32_t *buckets, size_t n);
int64_t nx_retire(nx_writer *writer, const uint32_t *buckets, size_t n);
/* Stores `word` as `owner` of the buckets that are WRITING or LIVE. */
int64_t nx_tie(nx_writer *writer, const uint32_t *buckets, uint64_t word, size_t n);
/* RETIRING -> LIVE, where reclaim left one because somebody reads it and its key has not been reserved anew. */
int64_t nx_revive(nx_writer *writer, const uint32_t *buckets, size_t n);
/* Frees those of the n retiring buckets that no pin array names; `freed` (room for n) gets them, and only their slots
 * may be used again. */
int64_t nx_reclaim(nx_writer *writer, const uint32_t *buckets, size_t n, nx_pins *const *pins, size_t pin_count,
                   uint32_t *freed);
/* Bucket of a LIVE or WRITING key, or NX_E_STALE. */
int64_t nx_find(nx_writer *writer, const void *key);
int nx_read(nx_writer *writer, uint32_t bucket, nx_record *out);
/* Collects and clears touch bits from bucket `*cursor` (a multiple of 64) on, up to `limit` >= 64 LIVE buckets;
 * *cursor = 0 at the end. */
int64_t nx_touched(nx_writer *writer, uint64_t *cursor, uint32_t *buckets, size_t limit);

/* Checks every entry after a daemon died; drops what is torn. Run it before the first write. */
int nx_recover(nx_writer *writer, nx_recovery *report);
/* Entries in use from bucket `*cursor` on, in bucket order; *cursor = 0 at the end. */
int64_t nx_entries(nx_writer *writer, uint64_t *cursor, nx_record *out, size_t limit);

/* The daemon's view of a pin object, whose bytes the client may scribble on: only `bytes` bounds it. */
int nx_pins_open(nx_pins **out, const void *memory, size_t bytes);
void nx_pins_close(nx_pins *pins);
uint64_t nx_pins_held(const nx_pins *pins);
/* Buckets that the words name just now, up to `limit` of them; gives their number. A hint for choosing victims, with no
 * fence: a pin that comes meanwhile is found by nx_reclaim. Not bounded by any table: the client may have written anything. */
uint64_t nx_pins_buckets(const nx_pins *pins, uint32_t *buckets, uint64_t limit);
void nx_pins_counts(const nx_pins *pins, uint64_t counts[3]); /* hits, misses, full: the client's word */

/* ---- a client: the socket, the descriptors it hands out, and hits with their pages mapped ------------------------- */

/* One thread at a time. It is the process's that opened it: a child of fork must open its own, and until then its calls
 * give NX_E_FORKED, its pages are NULL, and only nx_client_close is of use, which leaves the parent's session alone. */
typedef struct nx_client nx_client;

/* Says hello and attaches. timeout_ms bounds each wait for the daemon: to connect, to send a request, to receive a
 * message; 0 = wait for ever. A call waits a few times at most, and a hit on mapped segments never.
 * address: "unix:/path", or NULL for NEXUSKV_SOCKET, the system's or the user's socket.
 * *out is set on failure too (NULL only if there is no memory): nx_client_reason says why, and nx_client_close
 * frees it. */
int nx_client_open(nx_client **out, const char *address, uint32_t timeout_ms);
void nx_client_close(nx_client *client);
const char *nx_client_reason(const nx_client *client); /* of the last failure: a sentence */
const char *nx_client_instance(const nx_client *client);
const char *nx_client_tenant(const nx_client *client);
/* The newest attachment, for nx_lookup and nx_status; valid until the next call on this client. */
nx_reader *nx_client_reader(nx_client *client);
/* Announces a descriptor in its canonical msgpack form (`Descriptor` in Python: contract.encode). */
int nx_client_register(nx_client *client, const void *descriptor, size_t bytes, uint32_t *arena);
/* nx_pin, with the segments of all its pages mapped; asks the daemon only for those that are not. Where it cannot
 * get one (the daemon is away: nx_client_reason) the run ends before it, so that its page is a miss. Attaches anew
 * by itself when the daemon has moved, or another one answers in its place; what is pinned stays pinned and readable. */
int64_t nx_client_pin(nx_client *client, const void *keys, size_t n, nx_handle *handles);
int nx_client_unpin(nx_client *client, const nx_handle *handles, size_t n);
/* The page in place, `handle->length` bytes, read-only, for as long as it is pinned. NULL if this client has not
 * mapped its segment, or the handle is no place in it; that the page is still pinned is not checked. */
const void *nx_client_page(nx_client *client, const nx_handle *handle);

/* ---- mappings ---------------------------------------------------------------------------------------------------- */

/* Maps a whole object, with huge pages where it is large and the kernel lets it; its size is what fstat says. */
int nx_map(int fd, int writable, void **memory, size_t *bytes);
void nx_unmap(void *memory, size_t bytes);

/* ---- who is alive ------------------------------------------------------------------------------------------------ */

/* Takes the object's lock for this open file description, which goes wherever the descriptor is sent; the lock ends
 * with the last descriptor and mapping of it. NX_E_EXISTS: another description holds it. */
int nx_owner_lock(int fd);
/* 1 if another open file description than this one holds the lock, else 0. */
int nx_owner_alive(int fd);

#ifdef __cplusplus
}
#endif
#endif
