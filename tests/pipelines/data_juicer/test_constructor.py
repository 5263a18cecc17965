"""What the constructors of Data-Juicer's operators refuse is an error of `rejuice check`."""

import importlib

import pytest

from rejuice.operators import RecipeError
from rejuice.pipelines.data_juicer import catalogue, static_checks, steps
from rejuice.pipelines.data_juicer.failures import no_installs
from rejuice.pipelines.data_juicer.settings import arguments

pytest.importorskip("data_juicer")

pytestmark = pytest.mark.slow

REFUSED = [
    ("text_chunk_mapper", {"max_len": 3, "overlap_len": 5}, "fields 'max_len' is 3 and 'overlap_len' is 5; overlap_len must be less than max_len"),
    ("text_chunk_mapper", {"split_pattern": None}, "fields 'max_len' is None and 'split_pattern' is None; max_len and split_pattern cannot be both None"),
    ("fix_unicode_mapper", {"normalization": "x"}, """field 'normalization' is 'x'; Normalization mode [x] is not supported. Can only be one of ["NFC", "NFKC", "NFD", "NFKD"]"""),
    ("llm_quality_score_filter", {"input_keys": ["a", "b"]}, "fields 'input_keys' is ['a', 'b'] and 'field_names' is ['Text']; The input_keys and field_names must correspond one-to-one!"),
    ("document_minhash_deduplicator", {"tokenization": "sentencepiece"}, "field 'tokenizer_model' is None; To use 'sentencepiece' tokenization, 'tokenizer_model' is required."),
    ("text_pair_similarity_filter", {"any_or_all": "some"}, """field 'any_or_all' is 'some'; Keep strategy [some] is not supported. Can only be one of ["any", "all"]."""),
    ("s3_upload_file_mapper", {}, "field 's3_bucket' is None; s3_bucket must be specified"),
    ("video_split_by_key_frame_mapper", {}, "field 'save_dir' is None; `save_dir` must be specified to save the split video files."),
]  # fmt: skip


@pytest.mark.parametrize(("name", "fields", "message"), REFUSED)
def test_check_knows_what_a_constructor_refuses(monkeypatch, name, fields, message):
    monkeypatch.setattr(static_checks, "find_spec", lambda name: True)
    with pytest.raises(RecipeError) as raised:
        steps.step(name, fields)
    assert str(raised.value) == message


@pytest.mark.parametrize(("name", "fields", "message"), REFUSED)
def test_the_constructor_does_refuse_it(name, fields, message):
    from data_juicer.ops import OPERATORS

    with pytest.raises((ValueError, AssertionError, ImportError)), no_installs():
        OPERATORS.modules[name](**fields)


def test_the_fields_stay_as_they_were():
    given = {"model_params": {"max_tokens": 3}, "api_or_hf_model": "m"}
    static_checks.check(catalogue.find("llm_analysis_filter").cls, given)
    assert given == {"model_params": {"max_tokens": 3}, "api_or_hf_model": "m"}


def test_no_other_operator_refuses_its_own_defaults():
    refused = set()
    for name in catalogue.names():
        found = catalogue.find(name)
        if static_checks.check(found.cls, arguments({})).refusal is not None:
            refused.add(name)
    assert refused == {
        "generate_qa_from_examples_mapper",
        "image_ohem_selector",
        "s3_upload_file_mapper",
        "video_extract_frames_mapper",
        "video_split_by_key_frame_mapper",
        "video_undistort_mapper",
    }


def test_what_the_fields_do_not_decide_is_not_refused(tmp_path, monkeypatch):
    (tmp_path / "an_operator.py").write_text("""
KNOWN = frozenset("rstpq")

class Base:
    def __getattr__(self, name):
        if name == "_prepare":
            return lambda: setattr(self, "a", 0)

class Op(Base):
    def __init__(self, a=1, b="x", **kwargs):
        modes = ["x"]
        modes.append(b)
        if unknown(a):
            raise ValueError("no")
        for each in modes:
            assert each != b
        if b not in modes:
            raise ValueError("no")
        self.a = a
        self._prepare()
        if self.a > 1:
            raise ValueError("no")
        if kwargs.get("go"):
            return
        try:
            assert a == 0
        except AssertionError:
            pass
        assert a < 3, f"{a} is {unknown}, {b} is known, as are {KNOWN}"
""")
    monkeypatch.syspath_prepend(str(tmp_path))
    kind = importlib.import_module("an_operator").Op
    for fields in ({}, {"a": 2}, {"b": "y"}, {"a": 5, "go": True}):
        assert static_checks.check(kind, fields).refusal is None
    refusal = static_checks.check(kind, {"a": 5}).refusal
    known = "{'p', 'q', 'r', 's', 't'}"  # A set, whatever its order in this process.
    assert str(refusal) == f"field 'a' is 5; 5 is unknown, x is known, as are {known}"
