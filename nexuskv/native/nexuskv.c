/* nexuskv.c: the one C file to compile. It draws in its sections; each begins with what it owns.
 *
 * Why a hit needs no daemon, and why it is safe (the sections say at each access which rule it serves):
 *
 *   reader                                      daemon, evicting
 *   R1 g = load-acquire(generation)             W1 store(generation, RETIRING)   for the whole batch
 *   R2 read key, extent                         W2 fence(seq_cst)
 *   R3 store-release(pin word, bucket)          W3 load-acquire(every pin word)
 *   R4 fence(seq_cst)                           W4 named by a word: stays RETIRING
 *   R5 load(generation) == g: pinned               named by none: slot may be used again
 *      else: take the pin word back, a miss
 *
 * 1. A pinned page is never given away. R4 and W2 are both seq_cst fences, so one comes first in their total order.
 *    If R4 is first, the store R3 is visible to W3: the bucket stays. If W2 is first, the store W1 is visible to
 *    R5: the reader takes its pin back. Without either fence a store may wait in its core's store buffer while the
 *    load after it runs (x86 does that too), both sides see the old value, and a pinned page is overwritten.
 * 2. What the reader copied in R2 belongs to g. The daemon changes fields in WRITING only: P1 store(WRITING), P2
 *    fence(release), P3 store fields, P4 store-release(LIVE, next incarnation). A reader that saw a field of P3
 *    must, after its fence R4, see P1 or later in R5, and no value of the word comes back. R1 is an acquire, so a
 *    reader that saw LIVE sees the fields, and the page, of that incarnation: whoever wrote the page told the
 *    daemon before P4.
 * 3. Reads of a page are over before its slot is used again: the pin word is cleared, or given to another bucket,
 *    by a release store; W3 is an acquire.
 * 4. The pin array's high-water mark is raised before R3 and read after W2, so rule 1 holds for it as for the word.
 * 5. A word names a bucket, not an incarnation, to the daemon: a bucket does not get its next incarnation while any
 *    word names it, so a late or scribbled word delays an eviction and does nothing else.
 * 6. No false miss: entries never move, and the hop bit of an entry is set before P4 and cleared after W4. Whoever
 *    knows of a commit, through the daemon's answer or a seen LIVE, sees the bit as well. A stale bit leads to a
 *    row that is compared and refused.
 *
 * tests/native/model.py checks 1, 2 and 4 over all interleavings with store buffers, with each fence and each
 * release taken away in turn; the thread sanitizer checks 2 and 3; a stress test with real processes reads every
 * byte. For them alone NX_WITHOUT_READER_FENCE, NX_WITHOUT_WRITER_FENCE and NX_WITHOUT_RELEASE take away what their
 * names say.
 */
#define _GNU_SOURCE 1
#include "nexuskv.h"

#include "src/common.h"
/* in this order: each uses those before it */
#include "src/pins.h"
#include "src/search.h"
#include "src/reader.h"
#include "src/format.h"
#include "src/writer.h"
#include "src/recovery.h"
#include "src/wire.h"
#include "src/attachment.h"
#include "src/client.h"
