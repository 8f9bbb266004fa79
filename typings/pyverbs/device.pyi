class DeviceAttr:
    max_cqe: int
    max_mr: int
    max_mr_size: int
    max_qp_init_rd_atom: int
    max_qp_rd_atom: int
    max_qp_wr: int

class PortAttr:
    active_mtu: int
    lid: int
    link_layer: int
    max_msg_sz: int
    state: int

class GIDEntry:
    gid_index: int
    gid_type: int
    port_num: int
    def gid_str(self) -> str: ...

class Context:
    cmd_fd: int
    def __init__(self, *, name: str) -> None: ...
    def query_device(self) -> DeviceAttr: ...
    def query_port(self, port_num: int) -> PortAttr: ...
    def query_gid_table(self, max_entries: int) -> list[GIDEntry]: ...
    def close(self) -> None: ...
