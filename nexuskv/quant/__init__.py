"""Quantisation: numbers into the element types that quantised pages hold, and back.

Gathers the encoders: `int8`, `int4` and `fp8` for rows of numbers, `encode` and `decode` for the tensors of a page.
Each module states the error it may make. Knows nothing of daemons and clients.
"""

from nexuskv.quant import fp8, int4, int8
from nexuskv.quant.pages import decode, encode

__all__ = ["decode", "encode", "fp8", "int4", "int8"]
