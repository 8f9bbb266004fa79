/* Owns what becomes of the daemon when a client cuts off an object that both have mapped.
 *
 * A touch or pin object is its clients' to write, so they can also shorten it, and POSIX shared memory cannot be
 * sealed against that. What the daemon then reads beyond the end is a SIGBUS. For the ranges noted here the handler
 * lays zeroed memory of the daemon's own over everything from the fault on, and the access is repeated: no pin and no
 * hint stands there any more, which harms whoever was responsible for it. Any other SIGBUS goes where it went before.
 *
 * The binding alone has this: an engine's signal handlers are its own affair. */

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct py_guard {
  char *start;
  size_t bytes;
  struct py_guard *next;
} py_guard;

/* The list changes under the GIL, and what faults in a range runs under it: the handler sees no half change. */
static py_guard *py_guards;
static struct sigaction py_unguarded;
static uintptr_t py_guard_page; /* bytes of a page; 0 = no handler yet */

static bool py_guard_mend(uintptr_t fault) {
  for (const py_guard *guard = py_guards; guard != NULL; guard = guard->next) {
    uintptr_t start = (uintptr_t)guard->start, end = start + guard->bytes, page = fault - fault % py_guard_page;
    if (fault < start || fault >= end) continue;
    /* What lies behind a place past the end of an object is past it, too. */
    return mmap((void *)page, end - page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) !=
           MAP_FAILED;
  }
  return false;
}

static void py_guard_on_bus(int number, siginfo_t *info, void *context) {
  (void)context;
  int saved = errno;
  /* Sent by a process, not by a fault: nothing would be repeated, so the guard stays. */
  if (info->si_code <= 0) {
    if ((py_unguarded.sa_flags & SA_SIGINFO) == 0 && py_unguarded.sa_handler != SIG_DFL &&
        py_unguarded.sa_handler != SIG_IGN)
      py_unguarded.sa_handler(number);
    errno = saved;
    return;
  }
  bool mended = info->si_code == BUS_ADRERR && py_guard_mend((uintptr_t)info->si_addr);
  if (!mended) sigaction(number, &py_unguarded, NULL); /* the access is repeated, and faults for whoever had it */
  errno = saved;
}

static int py_guard_install(void) {
  if (py_guard_page != 0) return NX_OK;
  struct sigaction action = {.sa_sigaction = py_guard_on_bus, .sa_flags = SA_SIGINFO | SA_ONSTACK};
  sigemptyset(&action.sa_mask);
  if (sigaction(SIGBUS, &action, &py_unguarded) != 0) return NX_E_SYSTEM;
  py_guard_page = (uintptr_t)sysconf(_SC_PAGESIZE);
  return NX_OK;
}

/* `guard` is the caller's, until py_guard_end. */
static int py_guard_begin(py_guard *guard, void *start, size_t bytes) {
  int code = py_guard_install();
  if (code != NX_OK) return code;
  *guard = (py_guard){start, bytes, py_guards};
  py_guards = guard;
  return NX_OK;
}

/* Also for one that never began. */
static void py_guard_end(const py_guard *guard) {
  for (py_guard **at = &py_guards; *at != NULL; at = &(*at)->next) {
    if (*at != guard) continue;
    *at = guard->next;
    return;
  }
}
