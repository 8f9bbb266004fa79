"""Over which path pages come from a daemon on the other host, as the daemon on this one says."""

import nexuskv
from nexuskv.protocol.hosts import PathStats, PeerStats
from tests.softroce.far_daemon import SMALL, FarDaemon, opened
from tests.support import presets
from tests.support.hosts import peer
from tests.support.waiting import until


def known(client: nexuskv.Client, far: FarDaemon) -> PeerStats:
    """What the client's daemon knows of the other one."""
    found = peer(client, far.address)
    assert found is not None
    return found


def path(client: nexuskv.Client, far: FarDaemon, name: str) -> PathStats:
    """One of the ways to it."""
    return next(each for each in known(client, far).paths if each.name == name)


def pages_come_by(client: nexuskv.Client, far: FarDaemon, name: str) -> None:
    """Pulls a page again and again until they do."""
    cache = opened(client, SMALL)
    keys = presets.keys(cache, 1, branch=7)
    far.put(SMALL, 1, branch=7)

    def there() -> bool:
        client.evict(cache.descriptor.descriptor_id)
        cache.fetch(keys)
        return cache.lookup(keys) == 1 and known(client, far).path == name

    until(there, f"pages come by {name}")
