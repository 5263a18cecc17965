"""verl's configuration of a run: RUN/verl.yaml, which Hydra reads on top of verl's own defaults."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml

from ...operators.errors import RecipeError, suggest
from ..run import TrainingRun
from .failure import last_error
from .overrides import environment, overrides

NAME = "verl"
"""Name of the configuration, for `--config-name`; its file is `verl.yaml`."""
_DEFAULTS = "ppo_trainer"  # the configuration of verl that ours extends
_SEARCH = "hydra.searchpath"
_VERLS = "pkg://verl.trainer.config"
_UNKNOWN = re.compile(r"Could not override '([^']+)'")
_EXISTS = re.compile(r"Could not append to config\. An item is already at '([^']+)'")


def config_yaml(values: Mapping[str, Any]) -> str:
    """The text of `verl.yaml`."""
    from omegaconf import OmegaConf

    groups, document = list[dict[str, str]](), OmegaConf.create()
    for key, value in {**values, _SEARCH: _search_path(values)}.items():
        if _selects_group(key, value):
            groups.append({f"override {key}": value})
        else:
            OmegaConf.update(document, key.lstrip("+"), value, force_add=True)
    defaults = [_DEFAULTS, *groups, "_self_"]
    # Not OmegaConf.to_yaml, which quotes 1e-6 where PyYAML has read it as a text: it is a number
    # to YAML 1.2, to Hydra, and to whoever writes it into `train.verl`.
    settings = OmegaConf.to_container(document, resolve=False)
    assert isinstance(settings, dict)
    return yaml.safe_dump({"defaults": defaults, **settings}, sort_keys=False, allow_unicode=True)


def write_config(folder: Path, values: Mapping[str, Any]) -> None:
    """Write `verl.yaml` to a folder."""
    (folder / f"{NAME}.yaml").write_text(config_yaml(values), "utf-8")


def arguments(folder: Path) -> list[str]:
    """What makes verl's `main_ppo` read the `verl.yaml` of a folder."""
    return ["--config-dir", str(folder), "--config-name", NAME]


def are_known(values: Mapping[str, Any]) -> bool:
    """Whether all keys are verl's and plain, which is known without loading Hydra.

    False says nothing: then `check_keys` decides.
    """
    tree = _listing()
    return all(_is_leaf(tree, key.split(".")) for key in values)


def _listing() -> Any:
    """verl's defaults, as it lists them in one file; None if it does not."""
    # private: verl==0.9.1, tests/trainer/launch/test_verl_config.py::test_keys_that_are_known_at_once_are_known_to_hydra
    path = _verls_folder() / f"_generated_{_DEFAULTS}.yaml"
    if not path.exists():
        return None
    return yaml.load(path.read_text("utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def _is_leaf(tree: Any, names: Sequence[str]) -> bool:
    for name in names:
        if not isinstance(tree, dict) or name not in tree:
            return False
        tree = tree[name]
    return not isinstance(tree, dict)


def check_keys(values: Mapping[str, Any]) -> None:
    """Check that verl knows every key, and lacks those that begin with `+`.

    Hydra accepts any key from a file; here it checks each key by its name, without its value.

    Raises:
        RecipeError: a key is wrong.
    """
    from hydra import compose, initialize_config_dir
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    groups = [f"{key}={value}" for key, value in values.items() if _selects_group(key, value)]
    with initialize_config_dir(str(_verls_folder()), version_base=None):
        try:
            # Added keys first: an override would make a key null, and null keys can be added.
            names = sorted(_names(values), key=lambda name: not name.startswith("+"))
            search = f"{_SEARCH}=[{','.join(_search_path(values)[1:])}]"
            compose(_DEFAULTS, overrides=[search, *names])
            config_yaml(values)
        except (HydraException, OmegaConfBaseException, ValueError) as error:
            found = " ".join(str(error).split())
            if _UNKNOWN.search(found) or _EXISTS.search(found):
                # The names of groups are right: none of their keys would be known otherwise.
                known = set(_keys(compose(_DEFAULTS, overrides=[search, *groups])))
                raise RecipeError(*_wrong_key(found, known, values.get("model_engine"))) from None
            raise RecipeError(found) from None


def _search_path(values: Mapping[str, Any]) -> list[str]:
    """Where Hydra looks for files of groups: in verl, and where `hydra.searchpath` says."""
    return [_VERLS, *values.get(_SEARCH, [])]


def _wrong_key(message: str, known: Collection[str], engine: str | None) -> tuple[str, str]:
    """The key to which Hydra objects, and what would be right."""
    if match := _UNKNOWN.search(message):
        of_engine = f" with model_engine {engine}" if engine else ""
        right = suggest(match[1], known) or f"to add it all the same write +{match[1]}"
        return f"verl has no key '{match[1]}'{of_engine}", right
    match = _EXISTS.search(message)
    assert match is not None
    return f"verl has the key '{match[1]}' already", "write it without +"


def _names(values: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """Each key as an override of Hydra that has no value."""
    for name, value in ((str(name), value) for name, value in values.items()):
        key = f"{above}{name}"
        if key.startswith("hydra."):
            continue  # Hydra's own settings, which it checks itself, values included.
        if key.startswith("~"):
            raise RecipeError(f"verl's key '{key[1:]}' cannot be removed", "set it to null")
        if above and not above.startswith("+") and "." in name:
            right = f"nest {name.replace('.', ': {')}: …{'}' * name.count('.')}"
            raise RecipeError(f"'{name}' within '{above[:-1]}' is no key of verl", right)
        if isinstance(value, Mapping) and value:
            yield from _names(value, f"{key}.")
        elif _selects_group(key, value):
            yield f"{key}={value}"
        else:
            yield f"{key}={{}}" if isinstance(value, Mapping) else f"{key}=null"


def _selects_group(key: str, value: Any) -> bool:
    """Whether a key selects one of the files of a group of configurations, such as `model_engine`.

    These stand in the list of defaults.
    """
    is_group = "/" in key or "@" in key or (_verls_folder() / key).is_dir()
    return is_group and isinstance(value, str)


def _verls_folder() -> Path:
    """The folder of verl's configurations, found without importing verl, which takes seconds."""
    found = find_spec("verl")
    assert found is not None
    assert found.submodule_search_locations is not None
    return Path(found.submodule_search_locations[0]) / "trainer" / "config"


def _keys(config: Any) -> Iterator[str]:
    """All keys of a configuration, with dots."""
    from omegaconf import OmegaConf

    def walk(tree: Mapping[str, Any], above: str) -> Iterator[str]:
        for name, value in tree.items():
            yield f"{above}{name}"
            if isinstance(value, dict):
                yield from walk(value, f"{above}{name}.")

    tree = OmegaConf.to_container(config, resolve=False)
    assert isinstance(tree, dict)
    yield from walk(tree, "")


# --- verl's own validation of what a run would launch, without a run ------------------


def validate(run: TrainingRun, *, resume: bool = False) -> None:
    """Compose verl's configuration and have verl validate it; takes some seconds.

    Raises:
        RecipeError: verl does not know a key, or refuses the configuration.
    """
    values = overrides(run, resume)
    check_keys(values)
    with tempfile.TemporaryDirectory() as folder:
        write_config(Path(folder), values)
        done = subprocess.run(
            [sys.executable, "-m", "rejuice.trainer.launch.compose", folder],
            env={**os.environ, **environment(run)},
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    if done.returncode:
        found = last_error(done.stderr) or f"exit status {done.returncode}"
        raise RecipeError(f"verl could not validate its configuration: {found}")
    problem = json.loads(done.stdout.splitlines()[-1])
    if problem is not None:
        raise RecipeError(problem)
