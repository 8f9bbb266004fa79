"""What a profile declares: its states, and which of them hold keys and values in which format.

Owns the two formats of a declaration and the profile. Knows nothing of whether they fit; `validation` does.
"""

from nexuskv.contract.storage.form import Id, check_id
from nexuskv.contract.storage.states import Part, State
from nexuskv.contract.storage.vocabulary import Format


class F16(Part, frozen=True, tag=Format.F16.value, tag_field="format"):
    """Keys and values as F16, in one state."""

    state: Id

    def check(self) -> None:
        check_id("state", self.state)

    @property
    def payload(self) -> str:
        """Id of the state that holds the keys and values."""
        return self.state

    @property
    def states(self) -> tuple[str, ...]:
        """Ids of all states that it names, the payload's first."""
        return (self.state,)

    @property
    def format(self) -> Format:
        return Format.F16


class Int8(Part, frozen=True, tag=Format.INT8_PER_TOKEN_HEAD_F32_SCALE_V1.value, tag_field="format"):
    """Keys and values as I8 and, for each token and head, the F32 scale that they were divided by."""

    payload_state: Id
    scale_state: Id

    def check(self) -> None:
        check_id("payload_state", self.payload_state)
        check_id("scale_state", self.scale_state)

    @property
    def payload(self) -> str:
        """Id of the state that holds the keys and values."""
        return self.payload_state

    @property
    def states(self) -> tuple[str, ...]:
        """Ids of all states that it names, the payload's first."""
        return self.payload_state, self.scale_state

    @property
    def format(self) -> Format:
        return Format.INT8_PER_TOKEN_HEAD_F32_SCALE_V1


Declaration = F16 | Int8


class Profile(Part, frozen=True):
    """One way in which a model family stores its state; no declarations, no keys and values."""

    id: Id
    states: tuple[State, ...] = ()
    kv_storage: tuple[Declaration, ...] = ()

    def check(self) -> None:
        check_id("id", self.id)

    def state(self, state_id: str) -> State:
        """The state of that id, which must be declared."""
        return next(state for state in self.states if state.id == state_id)

    @property
    def by_id(self) -> dict[str, State]:
        """The states by their id."""
        return {state.id: state for state in self.states}
