"""Demonstrations of the look-up world: the planner's turns, as the flow and the tools make them."""

import random
from itertools import islice

import pytest

from rejuice.operators.agents.flows.react import PastStep, messages
from rejuice.pipelines.demo.problems import GOODS, SHOPS, WORDS, lookup_task, make_task
from tools.embedded_policy import lookups
from tools.embedded_policy.batches import batches
from tools.embedded_policy.lookups import PEOPLE, Carelessness, LookupCurriculum, plan, slip

QUESTION = "How many dollars do 9 tables cost where Olga shops?"
TASK = lookup_task(0, "train", 3)


@pytest.fixture(scope="module")
def tokenizer():
    return LookupCurriculum().tokenizer()


def some(seed=0, n=200, **change):
    return list(islice(LookupCurriculum(**change).demonstrations(seed), n))


def steps_of(prompt):
    """Question, actions and observations, read from a prompt."""
    question, *lines = prompt.split("\n")
    assert len(lines) % 2 == 0
    assert all(line.startswith("-> ") for line in lines[1::2])
    seen = [line.removeprefix("-> ") for line in lines[1::2]]
    return question, list(map(PastStep, lines[::2], seen))


def test_the_planner_solves_a_task_turn_by_turn():
    first, second = TASK.lookups
    prompt = QUESTION
    for action, seen in (
        ("search: Olga shops", first.document),
        ("search: depot tables", second.document),
        ("calculate: 9 * 51", "459"),
        ("answer: 459", None),
    ):
        assert plan(TASK, prompt) == action
        prompt += f"\n{action}\n-> {seen}"


def test_the_planner_searches_for_nothing_that_it_has_seen():
    first, second = TASK.lookups
    seen = f"{QUESTION}\nsearch: museum tables\n-> {second.document}"
    assert plan(TASK, seen) == "search: Olga shops"
    assert plan(TASK, f"{seen}\nsearch: Olga shops\n-> {first.document}") == "calculate: 9 * 51"


def slips(prompt, **kinds):
    shares = Carelessness(**{"hasty": 0, "pointless": 0, "malformed": 0, **kinds})
    rng = random.Random(0)
    return {slip(TASK, prompt, rng, shares) for _ in range(300)}


def test_hasty_answers_are_wrong_and_mostly_seen():
    _, second = TASK.lookups
    prompt = f"{QUESTION}\nsearch: depot tables\n-> {second.document}"
    assert slips(prompt, hasty=1) == {"answer: 51"}
    assert slips(f"{prompt}\ncalculate: 9 * 51\n-> 459", hasty=1) == {"answer: 51"}
    unseen = slips("How many eggs does Olga have?", hasty=1)
    assert len(unseen) > 50
    assert unseen <= {f"answer: {n}" for n in range(10, 100)}


def test_pointless_searches_are_for_something_else_or_again():
    prompt = f"{QUESTION}\nsearch: Emma eggs\n-> Emma has 3 eggs."
    found = slips(prompt, pointless=1)
    assert {"search: Olga shops", "search: Emma eggs"} < found
    assert all(action.startswith("search: ") for action in found)


def test_malformed_calls_are_those_that_no_tool_understands():
    first, second = TASK.lookups
    prompt = f"{QUESTION}\nsearch: Olga shops\n-> {first.document}"
    assert slips(QUESTION, malformed=1) == {"find: Olga shops"}
    prompt = f"{prompt}\nsearch: depot tables\n-> {second.document}"
    assert slips(prompt, malformed=1) == {"calculate: 9 *"}
    assert slips(f"{prompt}\ncalculate: 9 * 51\n-> 459", malformed=1) == {"result: 459"}


def test_demonstrations_depend_on_the_seed_alone():
    assert some(0) == some(0) != some(1)


def test_perfect_plans_succeed_through_the_flow_and_its_tools():
    """Every trajectory ends with the right answer, of every kind, after two to four turns."""
    shown = some(first_phase=1.0, wandering=0.0)
    assert all(len(each.responses) == 1 for each in shown)
    lengths = set()
    for number, each in enumerate(shown):
        _, steps = steps_of(each.prompt)
        if not steps and number:
            before, done = steps_of(shown[number - 1].prompt)
            assert shown[number - 1].responses[0].startswith("answer: "), before
            lengths.add(len(done) + 1)
    assert lengths == {2, 3, 4}


def test_prompts_are_those_of_the_flow_to_the_byte():
    for each in some(first_phase=0.0):
        question, steps = steps_of(each.prompt)
        assert messages((("user", question),), steps) == (("user", each.prompt),)


def test_the_first_phase_shows_right_actions_in_all_states():
    shown = some(first_phase=1.0, wandering=0.5)
    assert any("there is no tool 'find'" in each.prompt for each in shown)
    assert any("not an expression" in each.prompt for each in shown)
    for each in shown:
        (action,) = each.responses
        verb = action.partition(": ")[0]
        assert verb in ("search", "calculate", "answer")
        assert not action.endswith("*")


def test_later_a_share_of_the_actions_is_careless(monkeypatch):
    careless = []

    def mark(*arguments):
        careless.append(arguments)
        return "answer: 0"

    monkeypatch.setattr(lookups, "slip", mark)
    shown = some(first_phase=0.0, careless=0.35, n=1000)
    actions = [action for each in shown for action in each.responses]
    assert len(actions) == 4 * len(shown)
    assert actions.count("answer: 0") / len(actions) == pytest.approx(0.35, abs=0.04)


def test_phases_follow_one_another():
    shown = some(steps=10, batch=20, first_phase=0.5, n=200)
    responses = [len(each.responses) for each in shown]
    first = responses.index(4)
    assert 100 <= first < 105  # A trajectory that is under way is finished.
    assert set(responses[first:]) == {4}


@pytest.mark.slow
def test_two_ranks_share_all_demonstrations(tokenizer, monkeypatch):
    monkeypatch.setattr("tools.embedded_policy.batches.pack", lambda rows: rows)
    small = LookupCurriculum(steps=6, batch=4, window=3)
    shares = [list(batches(tokenizer, 0, small, rank)) for rank in (0, 1)]
    assert all(len(rows) == 2 for share in shares for rows in share)
    prompts = [row[0] for share in shares for rows in share for row in rows]
    texts = [tokenizer.decode(ids, skip_special_tokens=True) for ids in prompts]
    wanted = [f"user\n{each.prompt}\nassistant\n" for each in some(steps=6, batch=4, n=24)]
    assert sorted(texts) == sorted(wanted)


# The tokenizer


def texts():
    """Every question, document, action and observation of many tasks."""
    rng = random.Random(0)
    for _ in range(300):
        task = make_task(rng, PEOPLE)
        yield from (task.question, *task.documents)
    for each in (*some(first_phase=0.0, n=600), *some(first_phase=1.0, n=300)):
        yield from (each.prompt, *each.responses)


@pytest.mark.slow
def test_every_text_comes_back(tokenizer):
    for text in texts():
        assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


@pytest.mark.slow
def test_names_nouns_verbs_and_digits_are_one_token(tokenizer):
    """So that to copy one is one step."""
    for word in (*PEOPLE, *WORDS["things"], *GOODS, *SHOPS):
        assert tokenizer.tokenize(f"search: {word}") == ["search", ":", f"Ġ{word}"]
    for verb in ("search", "calculate", "answer"):
        assert tokenizer.tokenize(f"{verb}: 368") == [verb, ":", "Ġ", "3", "6", "8"]


@pytest.mark.slow
def test_prompts_are_short(tokenizer):
    longest = max(len(tokenizer(text)["input_ids"]) for text in texts())
    assert longest < 150  # `max_prompt_tokens` of recipes/flow_lookup.yaml, less the chat's own.
