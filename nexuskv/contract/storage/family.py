"""The profiles of a model family, and which of them answer a request for a format.

Owns the choice, and that it never puts another format in place of the one asked for. Knows nothing of programs.
"""

from collections import Counter

from nexuskv.contract.storage.declarations import Profile
from nexuskv.contract.storage.form import Id, check_id, within
from nexuskv.contract.storage.rules import Rule, refuse
from nexuskv.contract.storage.states import Part
from nexuskv.contract.storage.validation import validate
from nexuskv.contract.storage.vocabulary import Format


class Family(Part, frozen=True):
    """A model family; its profiles in order of preference."""

    id: Id
    profiles: tuple[Profile, ...]

    def check(self) -> None:
        check_id("id", self.id)
        for profile, count in Counter(profile.id for profile in self.profiles).items():
            if count > 1:
                raise refuse(
                    Rule.PROFILE_ID_TWICE, "profiles", f"{count} have the id {profile!r}; give each its own"
                )


class Automatic(Part, frozen=True, tag="automatic", tag_field="kind"):
    """Any profile of the family that has the format."""


class Required(Part, frozen=True, tag="required", tag_field="kind"):
    """This profile and no other."""

    profile_id: Id

    def check(self) -> None:
        check_id("profile_id", self.profile_id)


Selection = Automatic | Required


def candidates(
    family: Family, storage: Format | str, selection: Selection = Automatic()
) -> tuple[Profile, ...]:
    """The profiles that store keys and values as `storage`, in order of preference; at least one.

    A profile without keys and values answers the f16 request, and no other. Raises StorageError: for a profile that is
    not valid, also one that would not be chosen, and when none has the format.
    """
    wanted = _format(storage)
    formats = {profile.id: answered(profile, index) for index, profile in enumerate(family.profiles)}
    if isinstance(selection, Required):
        _check_required(family, formats, wanted, selection.profile_id)
        return tuple(profile for profile in family.profiles if profile.id == selection.profile_id)
    found = tuple(profile for profile in family.profiles if formats[profile.id] is wanted)
    if not found:
        raise refuse(
            Rule.NO_CANDIDATE,
            "format",
            f"no profile of {family.id} stores {wanted}; ask for {_either(formats) or 'another family'}",
        )
    return found


def answered(profile: Profile, index: int) -> Format:
    """The one request that a profile answers. `index` is its place in the family, for the error."""
    with within(f"profiles[{index}]"):
        return validate(profile) or Format.F16


def _format(storage: Format | str) -> Format:
    try:
        return Format(storage)
    except ValueError:
        raise refuse(
            Rule.MALFORMED, "format", f"{storage!r} is unknown; use one of {', '.join(Format)}"
        ) from None


def _check_required(family: Family, formats: dict[str, Format], wanted: Format, profile_id: str) -> None:
    if profile_id not in formats:
        raise refuse(
            Rule.PROFILE_UNKNOWN,
            "profile_id",
            f"{family.id} has no profile {profile_id!r}; use one of {', '.join(formats) or 'another family'}",
        )
    if formats[profile_id] is not wanted:
        raise refuse(
            Rule.PROFILE_FORMAT,
            "profile_id",
            f"{profile_id!r} stores {formats[profile_id]} where {wanted} was asked for; ask for that, or another one",
        )


def _either(formats: dict[str, Format]) -> str:
    return " or ".join(dict.fromkeys(formats.values()))
