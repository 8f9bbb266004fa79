"""The demo's result: as a struct for `--json`, as a table for people.

Owns which figures are shown and their wording. Knows nothing of how they came about.
"""

from collections.abc import Callable

import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from nexuskv.demo.ideal import Survey
from nexuskv.demo.scale import Plan
from nexuskv.demo.tally import Figures, Tally
from nexuskv.protocol.messages import Stats
from nexuskv.quantity import format_size


class Scale(msgspec.Struct, frozen=True):
    """The part of Llama-3-8B's state that was kept, and the memory it had."""

    descriptor_id: str
    layers: int
    kv_heads: int
    head_dim: int
    page_bytes: int
    fraction: int
    memory_budget: int
    everything_fits: bool

    @classmethod
    def of(cls, plan: Plan) -> "Scale":
        descriptor = plan.descriptor
        return cls(
            descriptor_id=descriptor.descriptor_id,
            layers=plan.layers,
            kv_heads=plan.heads,
            head_dim=plan.head_dim,
            page_bytes=descriptor.page_bytes,
            fraction=plan.fraction,
            memory_budget=plan.memory,
            everything_fits=plan.fits,
        )


class Aftermath(msgspec.Struct, frozen=True):
    """The arena after A and B were killed: A held `held` pins, B was writing `abandoned` pages."""

    held: int
    abandoned: int
    resident: int
    evicted: int
    pinned: int
    writing: int

    @classmethod
    def of(cls, held: int, abandoned: int, stats: Stats) -> "Aftermath":
        (arena,), (tenant,) = stats.arenas, stats.tenants
        return cls(held, abandoned, arena.resident, arena.evicted, tenant.pinned, arena.writing)


class Report(msgspec.Struct, frozen=True):
    """Everything the demo found; every byte of every hit was compared, or there would be no report."""

    seconds: float
    ideal_hit_rate: float
    scale: Scale
    engine_a: Figures
    engine_b: Figures
    served: Figures
    engine_c: Figures
    after_kill: Aftermath

    @classmethod
    def of(
        cls, survey: Survey, plan: Plan, tallies: tuple[Tally, Tally, Tally], after: Aftermath, seconds: float
    ) -> "Report":
        a, b, c = tallies
        return cls(
            seconds=seconds,
            ideal_hit_rate=survey.hit_rate,
            scale=Scale.of(plan),
            engine_a=a.figures(),
            engine_b=b.figures(),
            served=(a + b).figures(),
            engine_c=c.figures(),
            after_kill=after,
        )


Row = tuple[str, Callable[[Figures], str]]

ROWS: tuple[Row, ...] = (
    ("requests", lambda f: f"{f.requests:,}"),
    ("prompt tokens", lambda f: f"{f.tokens:,}"),
    ("tokens reused", lambda f: f"{f.tokens_reused:,}"),
    ("hit rate, in blocks", lambda f: f"{f.hit_rate:.1%}"),
    ("unlimited cache hits", lambda f: f"{f.ideal_hit_rate:.1%}"),
    ("shared in place", lambda f: format_size(f.bytes_read_in_place)),
    ("copied by a hit", lambda f: format_size(f.bytes_copied)),
    ("private memory grew", lambda f: format_size(f.private_bytes_grown)),
    ("stored", lambda f: format_size(f.bytes_stored)),
    ("match, p50", lambda f: _microseconds(f.match.p50_us)),
    ("match, p99", lambda f: _microseconds(f.match.p99_us)),
    ("reserve+commit, p50", lambda f: _microseconds(f.reserve_commit.p50_us)),
    ("reserve+commit, p99", lambda f: _microseconds(f.reserve_commit.p99_us)),
)


def print_scale(console: Console, survey: Survey, plan: Plan) -> None:
    """Says before the run what of the model is kept and whether it all fits."""
    scale = Scale.of(plan)
    console.print(
        f"{survey.requests:,} requests, {survey.tokens:,} prompt tokens, {survey.distinct:,} distinct blocks"
        f" of 512 tokens. Llama-3-8B geometry scaled to this machine: {_kept(scale)}, so"
        f" {format_size(scale.page_bytes)} a block instead of 64 MiB (1/{scale.fraction}), in"
        f" {format_size(scale.memory_budget)} of shared memory. "
        + ("Every block fits." if scale.everything_fits else "Not every block fits: the daemon will evict.")
    )


def print_report(console: Console, report: Report) -> None:
    """Prints the table, and what the columns mean."""
    title = f"One daemon, three engine processes, {report.seconds:.1f} s"
    table = Table(title=title, box=SIMPLE_HEAD, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column("", overflow="fold")
    for heading in ("engine A", "engine B", "A and B", "C after kill"):
        table.add_column(heading, justify="right", overflow="fold")
    for name, show in ROWS:
        columns = (report.engine_a, report.engine_b, report.served, report.engine_c)
        table.add_row(name, *(show(figures) for figures in columns))
    console.print(table)
    console.print(_closing(report))


def _closing(report: Report) -> str:
    after = report.after_kill
    return (
        "Every byte of every hit was compared with what its key calls for, and every page hit lay in a mapped"
        f" shared segment. A died with {after.held} pages pinned, B while it was writing {after.abandoned}:"
        f" {after.pinned} pins and {after.writing} unfinished pages were left, and C reached all"
        f" {after.resident:,} resident pages ({after.evicted:,} had been evicted)."
    )


def _kept(scale: Scale) -> str:
    return f"{scale.layers} of 32 layers, {scale.kv_heads} of 8 KV heads, {scale.head_dim} of 128 dimensions"


def _microseconds(value: float) -> str:
    return f"{value:,.0f} us" if value else "-"
