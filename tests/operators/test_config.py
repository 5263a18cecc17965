"""Which fields of a config decide results."""

from typing import ClassVar

from rejuice.operators.config import Config, deciding_fields


class Place(Config):
    """Where something is, and what it is."""

    excluded_from_cache_key: ClassVar[frozenset[str]] = frozenset({"address"})
    address: str
    thing: str


class Holder(Config):
    """Has places in every way that a field can have them."""

    one: Place
    listed: tuple[Place, ...] = ()
    named: dict[str, Place]
    none: Place | None = None
    number: int = 3


def test_what_is_excluded_is_left_out_at_every_depth():
    here, there = Place(address="here", thing="a"), Place(address="there", thing="a")
    found = [
        deciding_fields(Holder(one=each, listed=(each,), named={"x": each}))
        for each in (here, there)
    ]
    thing = {"thing": "a"}
    whole = {"one": thing, "listed": [thing], "named": {"x": thing}, "none": None, "number": 3}
    assert found == [whole, whole]
