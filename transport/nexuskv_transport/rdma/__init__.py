"""Pages by RDMA READ: the device of the pulling host fetches them, the serving host's CPU has no part in it.

`verbs` alone imports pyverbs, and is itself imported only by what `transport` opens. Owns devices, protection domains,
registered memory and queue pairs; refuses to know what a page is and who decided to move it.

    control   a TCP connection (or TLS): offers and answers, one for each queue pair; its end is the end of the peer
    lane      a reliable-connected queue pair for one tenant, in that tenant's protection domain on both sides
    regions   exposed memory: registered in chunks, for local writing and remote reading; nobody may write remotely
"""
