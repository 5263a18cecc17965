"""Two runs do not write one export: a lock on disk, a lease in an object store."""

import pytest

from rejuice.operators import RejuiceError
from rejuice.pipelines.dataset import remote
from rejuice.pipelines.dataset.remote import to_path
from rejuice.pipelines.engine.finished_export import sole_writer


def refused(export):
    with pytest.raises(RejuiceError) as error, sole_writer(export):
        pass
    return str(error.value) == (
        f"another run is writing {export}; wait for it, or give another --export_path"
    )


def test_a_lock_on_disk(tmp_path):
    export = tmp_path / "out" / "curated.parquet"
    with sole_writer(export) as hold:
        hold.check()
        assert refused(export)
        assert refused(export.with_suffix(".jsonl")), "they would have one run folder"
    with sole_writer(export):
        pass


@pytest.mark.slow
def test_a_lease_in_a_store(store, monkeypatch):
    monkeypatch.setattr(remote, "_BEAT_S", 0.1)
    export = to_path(f"{store}/curated.parquet")
    with sole_writer(export) as hold:
        assert refused(export)
        assert refused(export.with_suffix(".jsonl")), "they would have one run folder"
        hold.check()
    monkeypatch.setattr(remote, "_BEAT_S", 3600.0)
    with sole_writer(export) as hold:
        (claim,) = export.parent.glob(".curated.run.lock-*")
        claim.unlink()  # As another run does, for which this one is dead.
        with pytest.raises(RejuiceError) as error:
            hold.check()
        assert str(error.value) == (
            f"this run did not renew its lease, so that another may be writing {export}; "
            "when that has ended, run this recipe again: what was computed is kept"
        )
    assert list(export.parent.iterdir()) == [], "it is given back"
