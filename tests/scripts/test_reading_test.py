"""The reading test: packets, their keys, and scores."""

import json
import re
import runpy
from pathlib import Path

import numpy as np
import pytest
from reading.falsified import falsify
from reading.packets import ARMS, LETTERS, Asked, choose, packet, scores
from reading.questions import ORDER, PERCENT, QUOTAS, STEP, THRESHOLD, About, reward_functions
from reading.worlds import World, worlds

from tests.support.commands import ROOT

AGENTS = ROOT.parent / "shared" / "agents"
Packets = dict[str, tuple[str, dict[str, object]]]


def made(name: str, seed: int = 0) -> tuple[World, list[Asked], Packets]:
    (world,) = worlds([name], AGENTS, seed)
    chosen = choose(world, seed)
    return world, chosen, {arm: packet(world, chosen, arm, seed) for arm in ARMS}


@pytest.fixture(scope="module")
def taxi() -> tuple[World, list[Asked], Packets]:
    return made("fuel_taxi")


def check(world: World, packets: Packets) -> None:
    """What holds of the packets of every world."""
    keys = {arm: key["questions"] for arm, (_, key) in packets.items()}
    prompts = {arm: re.findall(r"\*\*q\d\d\*\* .*", text) for arm, (text, _) in packets.items()}
    for arm, (text, _) in packets.items():
        kinds = [question["kind"] for question in keys[arm].values()]  # type: ignore[attr-defined]
        assert {kind: kinds.count(kind) for kind in QUOTAS} == QUOTAS
        assert prompts[arm] == prompts["nothing"]
        for name in world.hidden:
            assert not re.search(rf"\b{re.escape(name)}\b", text, re.IGNORECASE), (arm, name)
    marked = [question["falsified"] for question in keys["falsified"].values()]  # type: ignore[attr-defined]
    assert 6 <= sum(marked) <= 16
    assert not any(question["falsified"] for question in keys["sentences"].values())  # type: ignore[attr-defined]
    check_changes(packets)


def check_changes(packets: Packets) -> None:
    """The falsified packet differs from the true one in the numbers that its key names, and nothing else."""
    true, false = (re.findall(r"\w+(?:\.\d+)?|\W+", packets[arm][0]) for arm in ("sentences", "falsified"))
    assert len(true) == len(false)
    differing = [(old, new) for old, new in zip(true, false, strict=True) if old != new]
    named = packets["falsified"][1]["changes"]
    assert isinstance(named, dict)
    parts = [
        pair
        for changes in named.values()
        for old, new in changes
        for pair in zip(old.split(" of "), new.split(" of "), strict=True)
        if pair[0] != pair[1]
    ]
    assert differing == parts
    assert parts


def test_packets_of_the_taxi(taxi: tuple[World, list[Asked], Packets]) -> None:
    world, _, packets = taxi
    check(world, packets)
    assert packets["sentences"][0] != packets["nothing"][0]
    text, key = packets["bars"]
    with pytest.raises(AssertionError, match="pickup"):  # a name that leaks is found
        check(world, packets | {"bars": (text + " pickup", key)})
    text, key = packets["falsified"]
    with pytest.raises(AssertionError):  # and so is a number that was changed and is not in the key
        check_changes(packets | {"falsified": (text.replace("step 0 is", "step 1 is"), key)})


def test_the_same_seed_makes_the_same_packets(taxi: tuple[World, list[Asked], Packets]) -> None:
    assert made("fuel_taxi")[2] == taxi[2]
    assert made("fuel_taxi", seed=1)[2]["sentences"] != taxi[2]["sentences"]


def test_truth_comes_from_the_arrays(taxi: tuple[World, list[Asked], Packets]) -> None:
    for asked in taxi[1]:
        for question in asked.questions:
            side = asked.case.side(question.about.side)
            if question.kind == "when":
                column = side.legend.names.index(f"first {question.about.outcome}")
                assert question.answer == side.expected[0, :, column].argmax()
            if question.kind == "likely":
                column = side.legend.names.index(f"first {question.about.outcome}")
                assert question.answer == pytest.approx(100 * side.expected[0, :, column].sum())


def test_scores(taxi: tuple[World, list[Asked], Packets]) -> None:
    key = taxi[2]["falsified"][1]
    questions = key["questions"]
    assert isinstance(questions, dict)
    perfect = {id: question["answer"] for id, question in questions.items()}
    assert all(right == asked for right, asked in scores(key, perfect).values())
    assert scores(key, {})["all"] == (0, 20)
    assert scores(key, dict.fromkeys(perfect, "what?"))["all"] == (0, 20)
    rng, shares = np.random.default_rng(0), []
    for _ in range(300):
        guessed = {
            id: LETTERS[rng.integers(question["options"])] if question["options"] else rng.integers(100)
            for id, question in questions.items()
        }
        shares.append(scores(key, guessed)["all"][0] / 20)
    assert 0.1 < np.mean(shares) < 0.35
    apart = scores(key, perfect)
    assert apart["falsified"][1] + apart["not falsified"][1] == 20


def test_reward_functions_give_nothing_away(taxi: tuple[World, list[Asked], Packets]) -> None:
    asked = [question for each in taxi[1] for question in each.questions if question.kind == "reward"]
    assert len({frozenset(question.options) for question in asked}) == 1
    true, *wrong = reward_functions(taxi[1][0].case.side(0).legend)
    assert all(other[name] != true[name] for other in wrong for name in true)
    assert all(len({each[name] for each in (true, *wrong)}) == 4 for name in true)


@pytest.mark.parametrize(
    ("said", "about", "expected"),
    [
        (
            "Ba: plan: first xo around step 4 (65 % at step 4), then yu around step 9. Zu instead: xo.",
            About(STEP, "xo", 0, 4, 12),
            "Ba: plan: first xo around step 12 (65 % at step 12), then yu around step 9. Zu instead: xo.",
        ),
        (
            "Ba: xo at step 5 or 6, then yu around step 7 (7 to 9). Zu instead: xo. Ba beats zu: xo "
            "(around step 5 against 9).",
            About(STEP, "xo", 0, 5, 11),
            "Ba: xo at step 11 or 12, then yu around step 7 (7 to 9). Zu instead: xo. Ba beats zu: xo "
            "(around step 11 against 9).",
        ),
        (
            "Ba: xo at step 2, then yu around step 7. Zu instead: xo at step 4, then yu.",
            About(ORDER, "xo", 0, 2, 7, "yu"),
            "Ba: yu at step 2, then xo around step 7. Zu instead: xo at step 4, then yu.",
        ),
        (
            "Ba: xo at step 2. Zu instead: the same. A tie: ba 1, zu 1. Surely: xo by step 2.",
            About(STEP, "xo", 1, 2, 8),
            None,
        ),
        (
            "Ba: 47 % risk of xo by step 6. Zu instead: 30 % risk of xo by step 6. Ba is worth less than zu: "
            "xo (47 % against 30 %).",
            About(PERCENT, "xo", 0, 47, 7),
            "Ba: 7 % risk of xo by step 6. Zu instead: 30 % risk of xo by step 6. Ba is worth less than zu: "
            "xo (7 % against 30 %).",
        ),
        (
            "Ba: xo. Zu instead: yu.\n\nZu overtakes ba at a xo penalty of 3 (now a reward of 3).",
            About(THRESHOLD, "xo", 0, -3, 5.5),
            "Ba: xo. Zu instead: yu.\n\nZu overtakes ba at a xo reward of 5.5 (now a reward of 3).",
        ),
        (
            "Ba: xo at step 7 (58 % [47 to 69 %]). Zu instead: yu at step 2 (58 % [47 to 69 %]).",
            About(PERCENT, "xo", 0, 58.3, 18.3),
            "Ba: xo at step 7 (18 % [7 to 29 %]). Zu instead: yu at step 2 (58 % [47 to 69 %]).",
        ),
        ("Ba: yu at step 4. Zu instead: xo at step 4.", About(STEP, "xo", 0, 4, 12), None),
    ],
)
def test_one_fact_is_falsified(said: str, about: About, expected: str | None) -> None:
    found = falsify(said, about, ("ba", "zu"), ("xo", "yu"))
    assert (None if found is None else found.text) == expected


def test_the_script_makes_and_scores(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main = runpy.run_path(str(ROOT / "scripts" / "reading_test.py"))["main"]
    main(["make", f"out={tmp_path}", "worlds=fuel_taxi", "arms=values"])
    key = json.loads((tmp_path / "keys" / "fuel_taxi-values.json").read_text())
    answers = {id: question["answer"] for id, question in key["questions"].items()}
    (tmp_path / "mine.json").write_text(json.dumps(answers))
    main(["score", f"packet={tmp_path}/packets/fuel_taxi-values.md", f"answers={tmp_path}/mine.json"])
    assert "all: 20 of 20 right (100%)" in capsys.readouterr().out
    for wrong in (["make"], ["make", "out=x", "worlds=mars"], ["score", "packet=x"]):
        with pytest.raises(SystemExit):
            main(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mountain_car", "lunar_lander"])
@pytest.mark.skipif(not AGENTS.exists(), reason="the agents are not there")
def test_packets_of_agents(name: str) -> None:
    world, _, packets = made(name)
    check(world, packets)
