"""Operators are found by name, wherever they are from, and no name has two meanings."""

import sys

import pytest

from rejuice.operators import Kind, OperatorError, RecipeError, get, installed, registry
from rejuice.operators.filter.pass_rate_filter import PassRateFilter
from rejuice.operators.registry import conflicts, find, load_all, load_file, load_files, owner
from rejuice.pipelines.analysis import reference
from rejuice.pipelines.analysis.reference import recipe_schema

SCORER = '''
from rejuice.operators import Filter, Mapper
class BrevityScorer(Mapper):
    """Score how brief a response is."""
    def map(self, table): return {}
class OddFilter(Filter):
    """Keep odd ones."""
    def decide(self, table): raise NotImplementedError
'''


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Puts a distribution with a module and entry points on the path."""
    # Data-Juicer, where another test has loaded it, must not learn of classes that will be gone.
    monkeypatch.setattr("rejuice.operators.operator.on_definition", [])

    def add(name, version, module, points, code=SCORER):
        info = tmp_path / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        lines = [f"{point} = {module}:{value}" for point, value in points]
        (info / "entry_points.txt").write_text("\n".join(["[rejuice.operators]", *lines, ""]))
        (tmp_path / f"{module}.py").write_text(code)
        modules.append(module)
        forget()

    def forget():
        registry.all_entry_points.cache_clear()
        registry.registered.cache_clear()

    modules = []
    monkeypatch.syspath_prepend(str(tmp_path))
    yield add
    for module in modules:
        sys.modules.pop(module, None)
    monkeypatch.undo()
    forget()


def test_the_operators_of_another_distribution_are_found(install):
    install("brief", "1.2", "brief", [("brevity_scorer", "BrevityScorer")])
    assert find("brevity_scorer").__module__ == "brief"
    assert get("brevity_scorer").kind is Kind.MAPPER
    assert owner(installed()["brevity_scorer"]) == "brief 1.2"
    assert owner(installed()["pass_rate_filter"]).startswith("rejuice ")
    assert conflicts() == {}


@pytest.mark.slow
def test_an_operator_with_any_name_is_listed_under_its_kind(install):
    before = reference.listing()
    install("brief", "1.2", "brief", [("brevity_scorer", "BrevityScorer")])
    mappers = reference.listing().split("\n\n")[0].splitlines()
    (line,) = (each for each in mappers if "brevity_scorer" in each)
    assert line.split() == [
        "brevity_scorer",
        "Score",
        "how",
        "brief",
        "a",
        "response",
        "is.",
        "[brief",
        "1.2]",
    ]
    assert reference.listing().replace(f"{line}\n", "") == before
    assert reference.entry("brevity_scorer") in reference.page().split("## Filters")[0]
    assert "brevity_scorer" in recipe_schema()["$defs"]


def test_a_name_that_two_distributions_register_is_refused_with_both(install, recipe_file):
    install("brief", "1.2", "brief", [("brevity_scorer", "BrevityScorer")])
    install("concise", "0.1", "concise", [("brevity_scorer", "BrevityScorer"), ("odd_filter", "OddFilter")])  # fmt: skip
    problem = (
        "operator 'brevity_scorer' is registered by brief 1.2 (brief:BrevityScorer) "
        "and by concise 0.1 (concise:BrevityScorer)"
    )
    for use in (find, get, reference.entry):
        with pytest.raises(RecipeError) as caught:
            use("brevity_scorer")
        assert str(caught.value) == f"{problem}; uninstall all but one of them"
    assert get("odd_filter").__module__ == "concise"
    assert get("pass_rate_filter") is PassRateFilter
    assert "brevity_scorer" not in installed()
    last = reference.listing().split("Not usable\n")[-1]
    assert last.split() == ["brevity_scorer", *problem.split()]
    assert "Keep odd ones.  [concise 0.1]" in reference.listing()
    assert "brevity_scorer" not in recipe_schema()["$defs"]


def test_a_recipe_with_such_a_name_is_refused(install, recipe_file):
    from rejuice.pipelines.recipe.recipe import load

    install("mine", "1", "mine", [("length_filter", "OddFilter")])
    with pytest.raises(RecipeError, match="operator 'length_filter' is registered by mine 1 ") as error:  # fmt: skip
        load(recipe_file([{"length_filter": {"min": 1}}]))
    assert str(error.value).split(": ")[0].endswith("recipe.yaml, line 4, step 1 length_filter")
    assert load(recipe_file(["exact_deduplicator"])).steps


def test_one_distribution_may_register_a_class_twice_but_not_two_classes(install):
    twice = [("odd_filter", "OddFilter")] * 2
    install("brief", "1.2", "brief", [*twice, ("a_scorer", "BrevityScorer"), ("a_scorer", "Other")])
    assert get("odd_filter").name() == "odd_filter"
    assert conflicts() == {
        "a_scorer": "operator 'a_scorer' is registered by brief 1.2 (brief:BrevityScorer) "
        "and by brief 1.2 (brief:Other)"
    }


def test_what_cannot_be_used_is_reported_with_its_owner(install):
    points = [("wrong_filter", "OddFilter"), ("no_filter", "Filter"), ("absent_filter", "Absent")]
    install("brief", "1.2", "brief", [*points, ("odd_filter", "OddFilter")])
    install("broken", "3", "broken", [("broken_filter", "X")], code="import not_there_at_all")
    usable, unusable = load_all()
    assert "odd_filter" in usable
    assert usable.keys() | unusable.keys() == installed().keys()
    where = "entry point '{}' of {} in rejuice.operators {}"
    assert unusable == {
        "absent_filter": where.format(
            "absent_filter", "brief 1.2", "does not import: AttributeError: "
            "module 'brief' has no attribute 'Absent'; update or uninstall it",
        ),
        "broken_filter": where.format(
            "broken_filter", "broken 3", "does not import: ModuleNotFoundError: "
            "No module named 'not_there_at_all'; update or uninstall it",
        ),
        "no_filter": where.format("no_filter", "brief 1.2", "names Filter; call it 'filter'"),
        "wrong_filter": where.format("wrong_filter", "brief 1.2", "names OddFilter; call it 'odd_filter'"),
    }  # fmt: skip
    assert all(why in reference.listing() for why in unusable.values())
    with pytest.raises(OperatorError, match=r"of broken 3 in rejuice\.operators does not import"):
        get("broken_filter")


def test_files_and_folders_of_operators(tmp_path):
    (tmp_path / "one.py").write_text(SCORER)
    (tmp_path / "two.py").write_text(SCORER.replace("Brevity", "Wit").replace("Odd", "Even"))
    names = ["brevity_scorer", "odd_filter", "wit_scorer", "even_filter"]
    assert list(load_file(tmp_path)) == names
    assert list(load_files([tmp_path / "one.py", tmp_path / "two.py"])) == names
    assert load_files([tmp_path / "one.py", tmp_path]) == load_file(tmp_path), "the same file"
    assert load_files([]) == {}


def test_a_file_may_ask_for_the_spec_of_its_module(tmp_path):
    asking = (
        "from importlib.util import find_spec\nassert find_spec(__name__).loader is __loader__\n"
    )
    (tmp_path / "asking.py").write_text(asking + SCORER)
    assert "brevity_scorer" in load_file(tmp_path)


def test_two_files_with_operators_of_one_name_are_refused(tmp_path):
    one, two = tmp_path / "one.py", tmp_path / "two.py"
    one.write_text(SCORER)
    two.write_text(SCORER.replace("Odd", "Even"))
    for paths in ([one, two], [tmp_path]):
        with pytest.raises(RecipeError) as caught:
            load_files(paths)
        assert str(caught.value) == (
            f"custom_operator_paths: 'brevity_scorer' is defined in {one} and in {two}; "
            "give one of the classes another name"
        )


def test_an_installed_name_cannot_be_taken_by_a_file(tmp_path, install):
    (tmp_path / "mine.py").write_text(SCORER)
    for name in ("brief", "concise"):
        install(name, "1", name, [("brevity_scorer", "BrevityScorer")])
        with pytest.raises(RecipeError, match="defines 'brevity_scorer', which is installed alr"):
            load_file(tmp_path / "mine.py")
