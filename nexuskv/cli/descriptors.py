"""`nexuskv descriptors`: the catalogue of presets, with what each costs in bytes.

Owns the table. Knows nothing of a daemon: it runs without one.
"""

import argparse

import msgspec
from rich.table import Table

from nexuskv.cli.options import Subparsers, console, print_json, wide_table
from nexuskv.contract import MULTI_HEAD, PRESETS, Descriptor, LastCheckpoint, context_bytes, context_saving
from nexuskv.quantity import format_size

CONTEXT_TOKENS = 128 * 1024


class Row(msgspec.Struct, frozen=True):
    """One preset. A recurrent state does not grow with the context, so it has no `token_bytes`.

    `saving` is the share of a 128K context that multi-head attention of as many layers would keep, and this does not.
    """

    descriptor_id: str
    semantic_type: str
    engine_family: str
    page_tokens: int
    page_bytes: int
    token_bytes: float | None
    context_bytes: int
    saving: float
    digest: str


def add_parser(subparsers: Subparsers) -> None:
    """Registers `descriptors`."""
    parser = subparsers.add_parser(
        "descriptors",
        help="list the presets: bytes a page, a token, a 128K context, and what multi-head attention would add",
    )
    parser.set_defaults(func=run)


def run(args: argparse.Namespace) -> int:
    """Prints the catalogue."""
    rows = [_row(descriptor) for descriptor in PRESETS.values()]
    if args.json:
        print_json(rows)
    else:
        console().print(_table(rows))
    return 0


def _row(d: Descriptor) -> Row:
    grows = not isinstance(d.reuse, LastCheckpoint)
    return Row(
        descriptor_id=d.descriptor_id,
        semantic_type=d.semantic_type,
        engine_family=d.engine_family.value,
        page_tokens=d.page_tokens,
        page_bytes=d.page_bytes,
        token_bytes=d.page_bytes / d.page_tokens if grows else None,
        context_bytes=context_bytes(d, CONTEXT_TOKENS),
        saving=context_saving(MULTI_HEAD[d.descriptor_id], d, CONTEXT_TOKENS),
        digest=d.digest.hex(),
    )


def _table(rows: list[Row]) -> Table:
    table = wide_table()
    for heading in ("descriptor", "kind", "engine", "digest"):
        table.add_column(heading, overflow="fold")
    for heading in ("tokens a page", "a page", "a token", "128K context", "saved"):
        table.add_column(heading, justify="right", overflow="fold")
    for row in rows:
        token = "constant" if row.token_bytes is None else format_size(round(row.token_bytes))
        names = (row.descriptor_id, row.semantic_type, row.engine_family, row.digest[:8])
        sizes = (format_size(row.page_bytes), token, format_size(row.context_bytes))
        table.add_row(*names, str(row.page_tokens), *sizes, f"{row.saving:.2%}")
    return table
