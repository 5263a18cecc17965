"""Recipes with the peculiarities of those in Data-Juicer's repository, and the count of them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rejuice.pipelines import load

pytest.importorskip("data_juicer")

pytestmark = pytest.mark.slow

BENCH = Path(__file__).parents[3] / "benchmarks" / "bench_upstream_recipes.py"
READ = {
    "configs/demo/plain.yaml": """
        # Process config example for dataset

        # global parameters
        project_name: 'demo-process'
        dataset_path: './demos/data/demo.jsonl'   # path to your dataset directory or file
        np: 4                                      # number of subprocesses
        text_keys: ['text', 'meta.title']
        export_path: './outputs/demo/demo.jsonl'
        open_tracer: true
        use_cache: false

        process:
          - whitespace_normalization_mapper:       # no fields at all
          - clean_links_mapper: {}
          - text_length_filter: {"min_len": 10, "max_len": 1e4}
          - alphanumeric_filter:
              tokenization: false
              min_ratio: .1
              max_ratio: 5e-1
          - special_characters_filter: &ratio
              max_ratio: 0.25
          - special_characters_filter:
              <<: *ratio
              min_ratio: 0.0
          - document_deduplicator:
              lowercase: True
              ignore_non_character: no
    """,
    "configs/demo/one_line.yml": """
        {"dataset_path": "a", "export_path": "b.jsonl", "process": [{"text_length_filter": null}],
         "dataset": {"configs": [{"type": "local", "path": "not looked at"}]}}
    """,
    "demos/ray/demo.yaml": """
        dataset_path: ./data/demo.jsonl
        export_path: ./outputs/demo/demo-processed    # under Ray a folder
        executor_type: ray
        ray_address: auto
        ds_cache_dir: null
        process:
          - video_duration_filter: {min_duration: 20, any_or_all: any, video_key: clips}
          - human_preference_annotation_mapper: {label_config_file: null, wait_for_annotations: false}
    """,
    "demos/ray/block.yaml": """
        dataset:
          configs:
            - type: local
              path: ./data/demo.jsonl
              weight: 1.0
        export_path: ./outputs/demo/demo-processed
        process:
          - suffix_filter: {suffixes: ['.py', '.jsonl']}
          - ray_document_deduplicator:
    """,
}
REFUSED = {
    "configs/datasets/block.yaml": (
        """
        dataset: {configs: [{type: remote, source: arxiv, path: some/thing}]}
        export_path: b.jsonl
        process: [text_length_filter: ]
        """,
        "line 2, dataset.configs.0: the source of a remote dataset is 'arxiv'; "
        "give huggingface, or a path such as s3://… as dataset_path",
    ),
    "demos/group.yaml": (
        """
        dataset_path: a
        export_path: b.jsonl
        process:
          - naive_grouper:
        """,
        "line 5, step 1 naive_grouper: it is of Data-Juicer's kind grouper, whose rows come from "
        "several rows each; run this recipe with dj-process",
    ),
}
NO_RECIPES = {
    ".github/workflow.yaml": "process: [text_length_filter]",
    "configs/template.yaml": "dataset_path: ''\nprocess: []",
    "configs/model.yaml": "train: {batch: 3}",
    "configs/broken.yaml": "process: [a",
    "configs/list.yaml": "- process",
}


@pytest.fixture
def checkout(tmp_path):
    """A folder like Data-Juicer's repository."""
    texts = {**READ, **{name: text for name, (text, _) in REFUSED.items()}, **NO_RECIPES}
    for name, text in texts.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


@pytest.mark.parametrize("name", READ)
def test_recipes_like_those_of_data_juicers_repository_are_read(checkout, name):
    assert load(checkout / name).steps


def test_the_bench_counts_them(checkout):
    lines = bench(str(checkout)).stdout.splitlines()
    assert lines[:2] == [f"{name}, {expected}" for name, (_, expected) in REFUSED.items()]
    counts = [line.strip() for line in lines[2:]]
    assert counts == ["6 recipes", "4 read", "2 refused"]


def test_the_bench_without_a_checkout():
    environment = {k: v for k, v in os.environ.items() if k != "DATA_JUICER_CHECKOUT"}
    assert bench(env=environment).stdout == (
        "no recipes: give a checkout of github.com/datajuicer/data-juicer, "
        "or set DATA_JUICER_CHECKOUT\n"
    )


def bench(*words, env=None):
    command = [sys.executable, str(BENCH), *words]
    return subprocess.run(
        command, env=env, capture_output=True, text=True, errors="replace", check=True
    )
