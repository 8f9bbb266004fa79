class GID:
    gid: str
    def __init__(self, val: str) -> None: ...

class GlobalRoute:
    def __init__(self, dgid: GID, sgid_index: int, hop_limit: int) -> None: ...

class AHAttr:
    def __init__(
        self, *, gr: GlobalRoute | None = None, dlid: int = 0, is_global: int = 0, port_num: int = 1
    ) -> None: ...
