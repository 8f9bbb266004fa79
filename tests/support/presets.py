"""The presets with fewer layers, so that a page of each is small, and keys for them."""

import msgspec

import nexuskv
from nexuskv.contract import PRESETS, Descriptor

LARGEST = 2 << 20


def scaled(name: str) -> Descriptor:
    """The preset with as many of its layers as fit a page of 2 MiB: what else it is stays."""
    preset = PRESETS[name]
    layers = max(1, min(preset.dims["layers"], preset.dims["layers"] * LARGEST // preset.page_bytes))
    layout = msgspec.structs.replace(preset.layout, stride_bytes=None)
    return msgspec.structs.replace(preset, dims={**preset.dims, "layers": layers}, layout=layout)


def keys(cache: nexuskv.Cache, pages: int, branch: int = 0) -> list[bytes]:
    """Keys of `pages` pages, of a chain or of one content; two branches share none."""
    if cache.descriptor.content_keyed:
        return cache.content_keys(b"image %d" % branch, pages)
    return cache.keys([branch] * (pages * cache.descriptor.page_tokens))
