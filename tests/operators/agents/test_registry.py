"""Tools and flows by name, and every mistake that is found before anything is sampled."""

import pickle
from uuid import uuid4

import pytest

from rejuice.operators import AgentRolloutMapper, OperatorError, RecipeError, registry
from rejuice.operators.agents import Tool
from rejuice.operators.agents.flow import FLOWS, TOOLS, build_flow, build_tools
from rejuice.operators.agents.tools.search import Search
from rejuice.operators.cache_key import cache_key_json, code_version
from rejuice.operators.registry import load_file
from rejuice.pipelines.recipe.columns import checked_schema
from rejuice.pipelines.recipe.recipe import Recipe, load

MINE = '''
from rejuice.operators import RecipeError
from rejuice.operators.agents import Flow, Tool

class Dictionary(Tool):
    """Look up a word."""
    column: str = "documents"
    def reads(self): return (self.column,)
    async def call(self, word: str, *, task) -> str: return task[self.column]

class Absent(Tool):
    """Is on no machine."""
    def check(self): raise RecipeError("no lookup machine is here", "buy one")
    async def call(self, word: str) -> str: return word

class Guess(Flow):
    """Guess once."""
    hint: str | None = None
    def reads(self): return () if self.hint is None else (self.hint,)
    async def run(self, task, play): return (await play.act(task.messages)).text
'''
ROWS = [{"question": "Why?", "answer": "42", "documents": "a page"}]


@pytest.fixture
def mine(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(MINE)
    return file


@pytest.fixture
def recipe_of(recipe_file, mine):
    """The path of a recipe with an agent's step."""

    def make(rows=ROWS, files=(mine,), **fields):
        process = [{"prompt_template_mapper": {}}, {"agent_rollout_mapper": fields}]
        return recipe_file(process, rows, custom_operator_paths=[str(file) for file in files])

    return make


def refusal(path):
    """What a check of a recipe says, after the place of the step."""
    with pytest.raises(RecipeError) as caught:
        checked_schema(load(path))
    message = str(caught.value)
    place = f"{path}, line 5, step 2 agent_rollout_mapper"
    assert message.startswith(place)
    return message.removeprefix(place).lstrip(":, ")


def test_built_in_ones_are_found_by_name():
    assert "react" in FLOWS.installed()
    assert "calculator" in TOOLS.installed()
    assert build_flow({"react": {"max_turns": 3}}).max_turns == 3
    (tool,) = build_tools([{"calculator": {}}])
    assert tool.name() == "calculator"


@pytest.mark.parametrize("kinds", [TOOLS, FLOWS], ids=lambda kinds: kinds.group)
def test_every_registered_one_can_be_used_and_is_documented(kinds):
    usable, unusable = kinds.load_all()
    assert unusable == {}
    for name, kind in usable.items():
        assert kind.__doc__, name


def test_files_may_define_operators_tools_and_flows(mine, tmp_path):
    assert load_file(mine) == {}
    assert list(TOOLS.load_files([mine])) == ["dictionary", "absent"]
    assert list(FLOWS.load_files([mine])) == ["guess"]
    (tmp_path / "nothing.py").write_text("x = 1")
    with pytest.raises(RecipeError) as caught:
        load_file(tmp_path / "nothing.py")
    assert str(caught.value) == (
        f"custom_operator_paths: no operator, tool or flow is defined in {tmp_path}/nothing.py; "
        "define a subclass of Filter, Mapper or Operator of rejuice.operators there, or of Tool "
        "or Flow of rejuice.operators.agents"
    )


def test_two_files_with_tools_of_one_name_are_refused(mine, tmp_path):
    other = tmp_path / "other.py"
    other.write_text(MINE.replace("Absent", "Present").replace("Guess", "Think"))
    with pytest.raises(RecipeError) as caught:
        TOOLS.load_files([mine, other])
    assert str(caught.value) == (
        f"custom_operator_paths: 'dictionary' is defined in {mine} and in {other}; "
        "give one of the classes another name"
    )


def test_an_installed_tool_cannot_be_replaced_by_a_file(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(MINE.replace("Dictionary", "Calculator"))
    with pytest.raises(RecipeError) as caught:
        load_file(file)
    assert str(caught.value) == (
        f"custom_operator_paths: {file} defines 'calculator', which is installed already; "
        "give the class another name"
    )


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Puts a distribution with a tool on the path."""

    def add(name, value):
        info = tmp_path / f"{name}-1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
        (info / "entry_points.txt").write_text(f"[rejuice.tools]\ndictionary = {value}\n")
        registry.all_entry_points.cache_clear()
        registry.registered.cache_clear()

    monkeypatch.syspath_prepend(str(tmp_path))
    yield add
    monkeypatch.undo()
    registry.all_entry_points.cache_clear()
    registry.registered.cache_clear()


def test_a_tool_of_two_distributions_is_refused_when_it_is_used(install):
    install("one", "one:Dictionary")
    install("two", "two:Dictionary")
    build_tools([{"calculator": {}}])
    with pytest.raises(RecipeError) as caught:
        build_tools([{"dictionary": {}}])
    assert str(caught.value) == (
        "tools: tool 'dictionary' is registered by one 1 (one:Dictionary) and by two 1 "
        "(two:Dictionary); uninstall all but one of them"
    )


def test_what_is_registered_as_a_tool_must_be_one(install):
    install("one", "json:JSONDecoder")
    with pytest.raises(OperatorError) as caught:
        build_tools([{"dictionary": {}}])
    assert str(caught.value) == (
        "entry point 'dictionary' of one 1 in rejuice.tools is <class 'json.decoder.JSONDecoder'>; "
        "name a Tool"
    )


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (
            {"tools": ["calculater"]},
            "tools: unknown tool 'calculater'; did you mean 'calculator'?",
        ),
        ({"flow": "reakt"}, "flow: unknown flow 'reakt'; did you mean 'react'?"),
        ({"flow": "gues"}, "flow: unknown flow 'gues'; did you mean 'guess'?"),
        (
            {"tools": ["dictionary", {"dictionary": {"column": "other"}}]},
            "tools: two tools are called 'dictionary'; leave one of them out",
        ),
        (
            {"tools": [{"dictionary": {"colunm": "x"}}]},
            "tools.dictionary: unknown field 'colunm'; did you mean 'column'?",
        ),
        (
            {"flow": {"react": {"max_turn": 2}}},
            "flow.react: unknown field 'max_turn'; did you mean 'max_turns'?",
        ),
        (
            {"flow": {"react": {"max_turns": 0}}},
            "flow.react: field 'max_turns' is 0; input should be greater than 0",
        ),
        (
            {"tools": [{"mcp": {"command": ["no-such-program"]}}]},
            "tools.mcp: the program 'no-such-program' of `command` is not found; "
            "install it, or give its path",
        ),
        ({"tools": ["absent"]}, "tools.absent: no lookup machine is here; buy one"),
        (
            {"tools": [{"dictionary": {"column": "reference"}}]},
            "tools.dictionary: it reads the column 'reference', which has the answer; "
            "let it read another column",
        ),
        (
            {"flow": {"guess": {"hint": "reference"}}},
            "flow.guess: it reads the column 'reference', which has the answer; "
            "let it read another column",
        ),
        (
            {"tools": [{"dictionary": {"column": "answer"}}]},
            "the tool dictionary reads column 'answer', which has the answer; "
            "let it read another column",
        ),
        (
            {"flow": {"guess": {"hint": "answer"}}},
            "the flow guess reads column 'answer', which has the answer; let it read another column",
        ),
        (
            {"tools": [{"dictionary": {"column": "docments"}}]},
            "column 'docments', which the tool dictionary reads, is missing; "
            "did you mean 'documents'?",
        ),
        (
            {"max_turns": 3},
            "unknown field 'max_turns'; "
            "it is a field of the flow: agent_rollout_mapper.flow.react.max_turns",
        ),
        (
            {"seconds": 3, "flow": "guess"},
            "unknown field 'seconds'; "
            "it is a field of the flow: agent_rollout_mapper.flow.guess.seconds",
        ),
        (
            {"flow": {"guess": {}, "max_turns": 3}},
            "unknown field 'max_turns'; "
            "it is a field of the flow: agent_rollout_mapper.flow.guess.max_turns",
        ),
        (
            {"flow": {"max_turns": 3}},
            "unknown field 'max_turns'; "
            "it is a field of the flow: agent_rollout_mapper.flow.NAME.max_turns",
        ),
        (
            {"flow": ["react"]},
            "field 'flow' is ['react']; write a name, or `name: {field: value}`",
        ),
        (
            {"tools": [{"a": {}, "b": {}}]},
            "field 'tools.0' is {'a': {}, 'b': {}}; write a name, or `name: {field: value}`",
        ),
        (
            {"flow": {"react": 7}},
            "field 'flow' is {'react': 7}; the fields of react are `field: value`",
        ),
        (
            {"tools": ["dictionary"], "tool_cache": "read_only", "tool_cache_path": "/no/file"},
            "`tool_cache: read_only`, but there is no tool cache /no/file; "
            "fill it with `tool_cache: read_write`",
        ),
        (
            {"temperature": 0.7},
            "on_policy needs temperature: 1 and top_p: 1; or set on_policy: false",
        ),
        (
            {"custom_operator_paths": ["x.py"]},
            "unknown field 'custom_operator_paths'; give it at the head of the recipe",
        ),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_before_anything_is_sampled(recipe_of, fields, expected):
    assert refusal(recipe_of(**fields)) == expected


@pytest.mark.parametrize("key", ["max_turns", "flow.max_turns"])
def test_a_budget_on_the_command_line_belongs_to_the_flow(recipe_of, key):
    path = recipe_of(flow={"react": {"format": "lines"}})
    right = {"agent_rollout_mapper.flow.react.max_turns": "3"}
    assert load(path, right).steps[1].operator.open_flow().max_turns == 3
    with pytest.raises(RecipeError, match="unknown field 'max_turns'") as error:
        load(path, {f"agent_rollout_mapper.{key}": "3"})
    assert str(error.value).endswith(f": {next(iter(right))}")


def test_an_unknown_tool_without_a_neighbour_lists_all(recipe_of):
    names = ", ".join(sorted({*TOOLS.installed(), "dictionary", "absent"}))
    assert refusal(recipe_of(tools=["zzz"])) == f"tools: unknown tool 'zzz'; the tools are: {names}"


def test_a_recording_needs_no_tool_that_works_and_no_column(recipe_of):
    fields = {"engine": "recorded", "recorded": {"path": "x.parquet"}}
    path = recipe_of([{"question": "Why?", "answer": "42"}], tools=["absent", "dictionary"], **fields)  # fmt: skip
    checked_schema(load(path))


def test_two_recipes_of_a_process_have_tools_of_one_name(recipe_of, tmp_path):
    other = tmp_path / "other.py"
    other.write_text(MINE.replace('"documents"', '"pages"'))
    first = load(recipe_of(tools=["dictionary"])).steps[1].operator
    second = load(recipe_of(tools=["dictionary"], files=[other])).steps[1].operator
    assert first.reads() == ("prompt_id", "prompt", "documents")
    assert second.reads() == ("prompt_id", "prompt", "pages")
    assert first.reader_of("documents") == "the tool dictionary"
    assert cache_key_json(first) != cache_key_json(second)


def test_a_step_with_tools_of_a_file_is_the_same_after_pickling(recipe_of):
    step = load(recipe_of(tools=["dictionary"], flow="guess")).steps[1].operator
    again = pickle.loads(pickle.dumps(step))
    assert again == step
    assert [tool.name() for tool in again.open_tools()] == ["dictionary"]
    assert again.open_flow().name() == "guess"


def test_a_recipe_is_the_same_once_it_is_written_and_read(recipe_of, tmp_path):
    recipe = load(recipe_of(tools=["dictionary", {"calculator": None}], flow="guess"))
    (tmp_path / "again.yaml").write_text(recipe.to_yaml())
    again = load(tmp_path / "again.yaml")
    assert [step[:3] for step in again.steps] == [step[:3] for step in recipe.steps]
    assert "custom_operator_paths" not in recipe.resolved()["process"][1]["agent_rollout_mapper"]


def test_a_file_that_only_a_step_names_cannot_be_written_as_yaml(mine):
    step = AgentRolloutMapper(tools=["dictionary"], custom_operator_paths=[mine])
    recipe = Recipe(["prompt_template_mapper", step], "x.jsonl", export_path="y.parquet")
    with pytest.raises(RecipeError) as caught:
        recipe.to_yaml()
    assert str(caught.value) == (
        f"Recipe, step 2 agent_rollout_mapper: only this step has {mine} in custom_operator_paths; "
        "give it in custom_operator_paths of the recipe, too"
    )


def test_recipes_in_python(mine):
    step = {"agent_rollout_mapper": {"tools": ["dictionary"]}}
    recipe = Recipe(["prompt_template_mapper", step], "x.jsonl", custom_operator_paths=[mine])
    own = AgentRolloutMapper(tools=["dictionary"], custom_operator_paths=[mine])
    assert recipe.steps[1].operator == own


def test_the_key_has_what_decides_trajectories_and_no_more(mine, tmp_path):
    def key(**fields):
        return cache_key_json(AgentRolloutMapper(custom_operator_paths=[mine], **fields))

    first = key(tools=["dictionary"])
    assert key(tools=["dictionary"], tool_cache="read_write", tool_cache_path="x") == first
    assert key(tools=[{"dictionary": {"column": "documents"}}]) == first
    assert key(tools=[{"dictionary": {"column": "pages"}}]) != first
    assert key(tools=["dictionary"], flow={"react": {"max_turns": 3}}) != first
    moved = tmp_path / "elsewhere.py"
    moved.write_text(MINE)
    step = AgentRolloutMapper(custom_operator_paths=[moved], tools=["dictionary"])
    assert cache_key_json(step) == first


def test_the_version_of_a_tool_is_in_the_key(tmp_path):
    keys = []
    for number in (1, 2):
        file = tmp_path / f"of_{number}.py"
        file.write_text(MINE.replace("column: str", f'code = "{number}"\n    column: str'))
        step = AgentRolloutMapper(custom_operator_paths=[file], tools=["dictionary"])
        keys.append(cache_key_json(step))
    assert keys[0] != keys[1]


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("return task[self.column]", "return task[self.column].upper()", False),
        ("(await play.act(task.messages)).text", "'42'", False),
        ("# end", "# the end", True),
        ("# end", "\n# end", True),
    ],
)
def test_edited_code_of_a_tool_or_a_flow_is_another_key(tmp_path, old, new, same):
    def key(text):
        file = tmp_path / "edited.py"
        file.write_text(text + "# end\n")
        return cache_key_json(
            AgentRolloutMapper(custom_operator_paths=[file], tools=["dictionary"], flow="guess")
        )

    assert (key(MINE) == key((MINE + "# end\n").replace(old, new))) == same


def test_a_tool_that_extends_another_one_has_its_version(tmp_path, monkeypatch):
    def version(code):
        file = tmp_path / "mine.py"
        file.write_text(f"from rejuice.operators.agents.tools.search import Search\n{code}")
        (tool,) = build_tools([{"mine": {"documents": "documents"}}], [file])
        code_version.cache_clear()
        return tool.cache_key_fields()["code"]

    class_ = "class Mine(Search): "
    versions = [version(f"{class_}{body}") for body in ("k: int = 2", "k: int = 3", "code = '7'")]
    monkeypatch.setattr(Search, "code", "2")
    versions.append(version(f"{class_}k: int = 2"))
    assert len(set(versions)) == 4
    assert versions[2] == "7"


def test_our_own_tools_and_flows_state_their_versions():
    """Edits of their code that change nothing sample nothing again."""
    for kind in (*TOOLS.load_all()[0].values(), *FLOWS.load_all()[0].values()):
        assert code_version(kind) == "1"


def test_a_tool_without_a_file_is_new_in_every_process():
    names = {"Tool": Tool}
    exec("class Typed(Tool):\n    async def call(self, word: str) -> str: return word", names)
    assert len(code_version(names["Typed"])) == len(uuid4().hex)


def test_the_schema_of_recipes_knows_tools_and_flows():
    schema = AgentRolloutMapper.model_json_schema()
    named = schema["properties"]["tools"]["items"]["anyOf"]
    assert "calculator" in named[0]["enum"]
    flows = schema["properties"]["flow"]["anyOf"]
    react = next(each for each in flows if "react" in each.get("properties", {}))
    found = react["properties"]["react"]["anyOf"][0]
    if "$ref" in found:
        found = schema["$defs"][found["$ref"].rsplit("/", 1)[-1]]
    assert "Most turns" in found["properties"]["max_turns"]["description"]
