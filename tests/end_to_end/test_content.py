"""State that is found by the content it was computed from: images, each for itself, in no chain."""

from collections.abc import Iterator

import numpy as np
import pytest

import nexuskv
from tests.support.daemon import Daemon, running
from tests.support.pages import fill, intact, put, small, verified

IMAGE = nexuskv.vision(
    "image", layers=2, grid_height=8, grid_width=8, key_dim=32, dtype="float16", engine_family="VLLM"
)
TILES = 4


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    with running(memory="64MiB") as daemon:
        yield daemon


def test_an_image_is_found_again_by_its_bytes(daemon: Daemon) -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (64, 64, 3), np.uint8)
    with daemon.client() as writer, daemon.client() as reader:
        cache = writer.open(IMAGE, model="m")
        assert put(cache, cache.content_keys(pixels, TILES)) == TILES
        again = reader.open(IMAGE, model="m")
        assert verified(again, again.content_keys(pixels.tobytes(), TILES)) == TILES
        pixels[0, 0, 0] ^= 1
        assert again.lookup(again.content_keys(pixels, TILES)) == 0


def test_each_page_stands_alone(daemon: Daemon) -> None:
    with daemon.client() as client:
        cache = client.open(IMAGE, model="m")
        tiles = cache.content_keys(b"an image", TILES)
        put(cache, tiles[2:])
        assert cache.lookup(tiles) == 0
        assert cache.lookup(tiles[2:]) == 2
        assert [status.state for status in cache.status(tiles)] == ["absent", "absent", "present", "present"]
        assert put(cache, tiles) == 2
        assert verified(cache, tiles) == TILES


def test_a_hit_ends_at_the_first_absent_page(daemon: Daemon) -> None:
    with daemon.client() as client:
        cache = client.open(IMAGE, model="m")
        tiles = cache.content_keys(b"an image", TILES)
        put(cache, [tiles[0], tiles[1], tiles[3]])
        with cache.match(tiles) as hit:
            assert (len(hit), hit.start, hit.stop) == (2, 0, 2)
            assert intact(hit)


def test_nobody_waits_for_the_page_that_another_writes(daemon: Daemon) -> None:
    """A chain is busy from the first page on that somebody else writes; images are not."""
    with daemon.client() as first, daemon.client() as second:
        one, two = first.open(IMAGE, model="m"), second.open(IMAGE, model="m")
        tiles = one.content_keys(b"an image", TILES)
        with one.reserve([tiles[1]]) as mine:
            with two.reserve(tiles) as others:
                assert [page.position for page in others] == [0, 2, 3]
                assert others.busy == 1
                fill(others)
            fill(mine)
        assert verified(two, tiles) == TILES


def test_one_page_is_evicted_and_the_others_stay(daemon: Daemon) -> None:
    with daemon.client() as client:
        cache = client.open(IMAGE, model="m")
        tiles = cache.content_keys(b"an image", TILES)
        put(cache, tiles)
        with cache.match(
            tiles[1:]
        ):  # used later than the first, which a chain would have kept for their sake
            evicted = client.evict("image", nbytes=1)
        assert evicted.pages == 1
        assert [status.state for status in cache.status(tiles)] == ["absent", *["present"] * 3]


@pytest.mark.parametrize("shared", [True, False])
def test_models_and_salts_are_kept_apart(daemon: Daemon, shared: bool) -> None:  # a parameter of pytest
    with daemon.client(shared=shared) as client:
        cache = client.open(IMAGE, model="m")
        put(cache, cache.content_keys(b"an image"))
        for other in (client.open(IMAGE, model="n"), client.open(IMAGE, model="m", salt="s")):
            assert other.lookup(other.content_keys(b"an image")) == 0
        assert verified(cache, cache.content_keys(b"an image")) == 1


def test_they_survive_the_daemon(daemon: Daemon) -> None:
    with daemon.client() as client:
        cache = client.open(IMAGE, model="m")
        tiles = cache.content_keys(b"an image", TILES)
        put(cache, tiles[1:])
        daemon.hand_over()
        daemon.restart()
        assert verified(cache, tiles[1:]) == TILES - 1
        assert put(cache, tiles) == 1


def test_tokens_do_not_find_images_nor_content_prefixes(daemon: Daemon) -> None:
    with daemon.client() as client:
        with pytest.raises(nexuskv.BadRequest, match="VISION_KV is found by its content: use content_keys"):
            client.open(IMAGE, model="m").keys([1] * 64)
        with pytest.raises(nexuskv.BadRequest, match="MHA_KV is found by its tokens: use keys"):
            client.open(small(), model="m").content_keys(b"an image")
