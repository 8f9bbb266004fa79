"""The routing matrix: for each kind of state how it is fetched, and what its gain is called.

Owns one row a kind, as data. Knows nothing of costs or of what is resident: `route` puts numbers to the names.
"""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

import msgspec


class Growth(StrEnum):
    """How the cost of computing grows with the tokens: attention looks back at all of them, a recurrence does not."""

    LINEAR = "linear"
    QUADRATIC = "quadratic"


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One kind. `granularity`, `transport` and the two terms of `gain` are the words of the matrix."""

    granularity: str
    transport: str
    compute: str
    """Name of the time that a hit saves."""
    cache: str = "T_cache"
    """Name of the time that a hit takes; "0" where nothing is moved or read anew."""
    growth: Growth = Growth.QUADRATIC

    @property
    def gain(self) -> str:
        """The formula of the gain, by the names of its terms."""
        return f"{self.compute} - {self.cache}"

    @property
    def moves_nothing(self) -> bool:
        """Whether a local hit is a pointer to what its reader has already: a branch shares its parent's pages."""
        return self.cache == "0"


MATRIX: Final[Mapping[str, Row]] = MappingProxyType(
    {
        "MHA_KV": Row(granularity="paged block", transport="POSIX SHM, direct RDMA", compute="T_compute"),
        "MLA_LATENT": Row(
            granularity="latent page (c_KV + k_R)",
            transport="zero-copy RDMA descriptors",
            compute="T_prefill_mla",
            cache="T_rdma_latent",
        ),
        "DSA_SPARSE": Row(
            granularity="sparse mask block",
            transport="on-demand block pull",
            compute="T_sparse_compute",
            cache="T_sparse_pull",
        ),
        "NSA_SPARSE": Row(
            granularity="summary and selected blocks",
            transport="POSIX SHM, direct RDMA",
            compute="T_sparse_compute",
        ),
        "KDA_RECURRENT": Row(
            granularity="checkpoint segment",
            transport="direct SHM pointer",
            compute="T_recurrent_recompute",
            cache="T_h_t_load",
            growth=Growth.LINEAR,
        ),
        "SSM_MAMBA2": Row(
            granularity="state snapshot, O(1)",
            transport="fast IPC handle",
            compute="T_ssm_scan",
            cache="T_snapshot_load",
            growth=Growth.LINEAR,
        ),
        "VISION_KV": Row(
            granularity="spatio-temporal tensor",
            transport="pinned memory pool",
            compute="T_vision_encode",
            cache="T_vision_cache",
        ),
        "TOT_BRANCH": Row(
            granularity="copy-on-write radix branch",
            transport="O(1) page pointer reuse",
            compute="T_branch_recompute",
            cache="0",
        ),
    }
)
"""By semantic type."""
