"""All that may be said over the Unix socket: requests, replies, and notices that come unasked.

Owns the three unions, from which the codec is made. A message itself stands in the file of its subject.
"""

from nexuskv.protocol import branches as b
from nexuskv.protocol import fetches as f
from nexuskv.protocol import hosts as h
from nexuskv.protocol import messages as m
from nexuskv.protocol import offers as o

Request = (
    m.Hello
    | m.Register
    | m.Attach
    | m.Map
    | m.Lookup
    | m.Measure
    | m.Pin
    | m.Release
    | m.Reserve
    | m.ReserveGroup
    | m.Commit
    | m.Abort
    | m.Withdraw
    | m.GetStats
    | m.Evict
    | m.Drain
    | h.Fetch
    | f.FetchBlocks
    | f.FetchGroup
    | h.Push
    | h.GetPeers
    | o.GetOffers
    | b.OpenBranch
    | b.AttachBranch
    | b.Fork
    | b.Append
    | b.PublishBranch
    | b.DropBranches
    | b.TraceBranch
    | b.ListBranches
    | b.GetPath
)
Reply = (
    m.Welcome
    | m.Registered
    | m.Attached
    | m.Found
    | m.Measured
    | m.Pinned
    | m.Reserved
    | m.ReservedGroup
    | m.Committed
    | m.Done
    | m.Stats
    | m.Evicted
    | h.Fetched
    | h.Pushed
    | h.Peers
    | o.Offers
    | m.Refused
    | b.Branched
    | b.Forked
    | b.Appending
    | b.Branches
    | b.Path
)
Notice = m.Segments | m.Dropped
