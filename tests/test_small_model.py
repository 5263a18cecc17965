"""The model of recipes/small_model, and the table of what it wrote before and after training."""

import hashlib
import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from tools import small_model


def test_weights_of_another_hash_are_not_used(tmp_path):
    file = tmp_path / "model.gguf"
    file.write_bytes(b"weights")
    small_model.check(file, hashlib.sha256(b"weights").hexdigest())
    with pytest.raises(SystemExit, match=r"^model.gguf has the SHA-256 .*, and not 00: it is not"):
        small_model.check(file, "00")


def test_a_model_that_is_there_is_left_as_it_is(tmp_path, monkeypatch):
    monkeypatch.setattr(small_model, "_from_hub", lambda _: pytest.fail("it was there"))
    (tmp_path / "model.safetensors").touch()
    small_model.get(tmp_path)


def test_responses_before_and_after_stand_beside_each_other(tmp_path):
    for step, answer in ((0, "I add.\nIt is 5."), (20, "It is 7."), (10, "It is 6.")):
        row = {"prompt_id": "a", "question": "What is 3 + 4?", "reference": "7", "response": answer}
        others = [{**row, "response": "later"}, {**row, "prompt_id": f"b{step}"}]
        table = pa.Table.from_pylist(
            [{**each, "verdict": "wrong_answer"} for each in (row, *others)]
        )
        path = tmp_path / "validations" / f"{step:06d}.parquet"
        path.parent.mkdir(exist_ok=True)
        pq.write_table(table, path)
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(small_model.responses(tmp_path))
    text = console.export_text()
    for found in ("step 0", "step 20", "What is 3 + 4? (7)", "I add. It is 5.", "It is 7."):
        assert found in text
    assert "later" not in text
    assert text.count("What is 3") == 1  # Only what both steps have, once.


def test_a_run_without_validation_has_none(tmp_path):
    with pytest.raises(SystemExit, match=r"has no validation$"):
        small_model.responses(tmp_path)
