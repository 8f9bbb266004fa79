from pyverbs.pd import PD

class MR:
    lkey: int
    rkey: int
    def __init__(self, creator: PD, length: int, access: int, address: int) -> None: ...
    def close(self) -> None: ...
