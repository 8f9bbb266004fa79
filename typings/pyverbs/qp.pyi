from pyverbs.addr import AHAttr
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.pd import PD
from pyverbs.wr import SGE, SendWR

class QPCap:
    def __init__(
        self, *, max_send_wr: int, max_recv_wr: int, max_send_sge: int, max_recv_sge: int
    ) -> None: ...

class QPInitAttrEx:
    def __init__(
        self,
        *,
        qp_type: int,
        scq: CQ,
        rcq: CQ,
        cap: QPCap,
        sq_sig_all: int,
        comp_mask: int,
        pd: PD,
        send_ops_flags: int,
    ) -> None: ...

class QPInitAttr:
    def __init__(self, *, qp_type: int, scq: CQ, rcq: CQ, cap: QPCap, sq_sig_all: int) -> None: ...

class QP:
    qp_num: int
    def __init__(self, creator: PD, init_attr: QPInitAttr) -> None: ...
    def to_rts(self, qp_attr: QPAttr) -> None: ...
    def post_send(self, wr: SendWR) -> None: ...
    def close(self) -> None: ...

class QPAttr:
    ah_attr: AHAttr
    dest_qp_num: int
    max_dest_rd_atomic: int
    max_rd_atomic: int
    min_rnr_timer: int
    path_mtu: int
    qp_access_flags: int
    qp_state: int
    retry_cnt: int
    rnr_retry: int
    rq_psn: int
    sq_psn: int
    timeout: int
    def __init__(self, *, port_num: int = 1) -> None: ...

class QPEx:
    qp_num: int
    wr_id: int
    wr_flags: int
    def __init__(self, creator: Context, init_attr: QPInitAttrEx) -> None: ...
    def to_rts(self, qp_attr: QPAttr) -> None: ...
    def modify(self, qp_attr: QPAttr, mask: int) -> None: ...
    def wr_start(self) -> None: ...
    def wr_rdma_read(self, rkey: int, remote_addr: int) -> None: ...
    def wr_set_sge(self, sge: SGE) -> None: ...
    def wr_complete(self) -> None: ...
    def wr_abort(self) -> None: ...
    def close(self) -> None: ...
