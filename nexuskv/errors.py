"""Every error a user of NexusKV can meet, named by who is to blame.

Owns the exception types and the wire code each carries. Knows nothing of sockets, shared memory or descriptors: whoever
detects a fault writes the sentence, and the sentence says what to do about it. A miss is a value, never an error.
"""

from typing import ClassVar


class NexusError(Exception):
    """Base of all errors of this package; `code` is the stable name that travels on the wire."""

    code: ClassVar[str] = "error"


class LocalError(NexusError):
    """The caller's bug: the same call will fail again until the caller changes it."""

    code = "local"


class DescriptorError(LocalError, ValueError):
    """A descriptor that breaks the contract; `field` names the part of it to mend."""

    code = "bad_descriptor"

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}" if field else message)
        self.field = field


class StorageError(LocalError, ValueError):
    """A KV storage declaration that breaks a rule: `rule` is its stable code, `field` the part to mend."""

    code = "bad_storage"

    def __init__(self, message: str, *, rule: str = "", field: str = "") -> None:
        super().__init__(f"{field}: {message}" if field else message)
        self.rule = rule
        self.field = field


class DescriptorConflict(LocalError):
    """A descriptor id that is already registered with other content."""

    code = "descriptor_conflict"


class FlagMissing(LocalError):
    """The descriptor's compatibility_flags do not permit that; the sentence names the flag."""

    code = "flag_missing"


class UnknownDescriptor(LocalError):
    """A request that names an arena which this session has not registered."""

    code = "unknown_descriptor"


class NotReserved(LocalError):
    """A commit or abort of pages that this session holds no reservation for (any more)."""

    code = "not_reserved"


class ParentMissing(LocalError):
    """A reservation or commit whose parent page is not resident: it would break prefix closure."""

    code = "parent_missing"


class CostUnknown(LocalError):
    """A gain was asked for before anybody said, or observed, what computing costs."""

    code = "cost_unknown"


class BadRequest(LocalError):
    """A request that the protocol forbids: out of order, out of bounds, or of an unknown kind."""

    code = "bad_request"


class UnknownBranch(LocalError):
    """A branch that is not there (any more), is another tenant's, or is not held by this session."""

    code = "unknown_branch"


class BranchMoved(NexusError):
    """Somebody else appended to the branch since this process looked: refresh it, then append anew."""

    code = "branch_moved"


class Busy(NexusError):
    """Somebody is at it just now, perhaps this process itself: the same call succeeds when they are done."""

    code = "busy"


class Closed(LocalError):
    """Use of a client, hit or reservation after it was closed."""

    code = "closed"


class NotPermitted(NexusError):
    """The daemon's operator did not give this uid the right to do that."""

    code = "not_permitted"


class PinningRefused(NexusError):
    """The kernel or the device does not let this process lock so much memory; nothing of the call was locked."""

    code = "pinning_refused"


class ArenaFull(NexusError):
    """No room, and nothing left that may be evicted.

    `numbers`, in bytes: needed_bytes, free_bytes, pinned_bytes, writing_bytes, arena_bytes, budget_bytes.
    """

    code = "arena_full"

    def __init__(self, message: str, numbers: dict[str, int] | None = None) -> None:
        super().__init__(message)
        self.numbers = numbers or {}


class Disconnected(NexusError):
    """The daemon is not there, or ended the session; the next call connects anew."""

    code = "disconnected"


class DeadlineExceeded(NexusError):
    """The daemon did not answer within the client's timeout. `sent`: whether it may still do what was asked."""

    code = "deadline_exceeded"

    def __init__(self, message: str, *, sent: bool = True) -> None:
        super().__init__(message)
        self.sent = sent


class VersionMismatch(NexusError):
    """Client and daemon speak different protocol versions."""

    code = "version_mismatch"


class RemoteError(NexusError):
    """The daemon answered what the protocol does not allow: a bug on its side, or not a nexuskvd at all."""

    code = "remote"


class StartupError(NexusError):
    """The daemon cannot start as configured; nothing was created."""

    code = "startup"
