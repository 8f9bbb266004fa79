"""The rules of KV storage declarations, each with the stable code by which a program can tell which one was broken.

Owns the codes and how a refusal is made of one. Knows no rule's condition: those stand where the parts are.
"""

from enum import StrEnum

from nexuskv.errors import StorageError


class Rule(StrEnum):
    """One rule each; the value is what `StorageError.rule` says."""

    MALFORMED = "malformed"
    UNKNOWN_FIELD = "unknown_field"
    BAD_ID = "bad_id"

    TENSOR_RANK = "tensor_rank"
    TENSOR_DIMENSION = "tensor_dimension"
    TENSOR_OVERFLOW = "tensor_overflow"
    STRIDE_COUNT = "stride_count"
    STRIDE_SIZE = "stride_size"

    CAPACITY_ZERO = "capacity_zero"
    CAPACITY_TOKENS_ZERO = "capacity_tokens_zero"
    CAPACITY_OVERFLOW = "capacity_overflow"
    CAPACITY_BELOW_TENSOR = "capacity_below_tensor"
    CHECKPOINT_LIFETIME = "checkpoint_lifetime"

    STATE_ID_TWICE = "state_id_twice"
    VALUE_ID_TWICE = "value_id_twice"
    FORMATS_MIXED = "formats_mixed"
    STATE_SHARED = "state_shared"
    STATE_UNDECLARED = "state_undeclared"

    PAYLOAD_ELEMENT_TYPE = "payload_element_type"
    PAYLOAD_SHAPE = "payload_shape"
    PAYLOAD_EMPTY = "payload_empty"
    SCALE_ELEMENT_TYPE = "scale_element_type"
    SCALE_SHAPE = "scale_shape"
    SCALE_TOKENS = "scale_tokens"
    SCALE_INITIALISATION = "scale_initialisation"
    SCALE_CHECKPOINT = "scale_checkpoint"
    KV_LAYOUT = "kv_layout"
    KV_LIFETIME = "kv_lifetime"
    KV_CHECKPOINT_CONTENTS = "kv_checkpoint_contents"
    KV_CAPACITY_KIND = "kv_capacity_kind"
    KV_BYTES_PER_TOKEN = "kv_bytes_per_token"

    NODE_ID_TWICE = "node_id_twice"
    TABLE_PORTS = "table_ports"
    PORT_MISSING = "port_missing"
    PAYLOAD_UNDECLARED = "payload_undeclared"
    SCALES_UNDECLARED = "scales_undeclared"
    PORT_CONFLICT = "port_conflict"
    FORMAT_CONFLICT = "format_conflict"
    DECLARATION_UNCONSUMED = "declaration_unconsumed"

    PROFILE_ID_TWICE = "profile_id_twice"
    PROFILE_UNKNOWN = "profile_unknown"
    PROFILE_FORMAT = "profile_format"
    NO_CANDIDATE = "no_candidate"

    NOTHING_DECLARED = "nothing_declared"
    NOT_OF_PROFILE = "not_of_profile"
    GEOMETRIES_MIXED = "geometries_mixed"
    PAGE_TOKENS = "page_tokens"


def refuse(rule: Rule, field: str, message: str) -> StorageError:
    """The error to raise: `message` says what is wrong and what to do about it."""
    return StorageError(message, rule=rule.value, field=field)
