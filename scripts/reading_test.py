"""The reading test: make packets of texts and questions for readers who do not know the world; score answers.

python scripts/reading_test.py make out=reading agents=../agents   a packet for each world and arm
python scripts/reading_test.py score packet=reading/packets/fuel_taxi-sentences.md answers=mine.json

make:   worlds=fuel_taxi,mountain_car,lunar_lander  arms=nothing,probabilities,values,bars,sentences,falsified
        seed=0; `agents` is a folder with dqn-MountainCar-v0.zip and qrdqn-LunarLander-v2.zip
score:  answers is a file with the JSON of a packet's answer template, filled in
"""

import json
import os
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

from reading.packets import ARMS, scores, write
from reading.worlds import AGENTS, worlds

WORLDS = ("fuel_taxi", *AGENTS)


def main(words: list[str]) -> None:
    """Make packets, or score answers."""
    command, given = words[0] if words else "", dict(word.split("=", 1) for word in words[1:] if "=" in word)
    if command == "make" and set(given) <= {"out", "agents", "worlds", "arms", "seed"} and "out" in given:
        _make(given)
    elif (
        command == "score"
        and set(given) <= {"packet", "answers", "key"}
        and {"packet", "answers"} <= set(given)
    ):
        _score(given)
    else:
        sys.exit(__doc__)


def _make(given: dict[str, str]) -> None:
    names = given.get("worlds", ",".join(WORLDS)).split(",")
    arms = given.get("arms", ",".join(ARMS)).split(",")
    unknown = [name for name in names if name not in WORLDS] + [arm for arm in arms if arm not in ARMS]
    if unknown:
        sys.exit(f"there is no {unknown[0]}: worlds are {', '.join(WORLDS)}, arms are {', '.join(ARMS)}")
    agents, seed = Path(given.get("agents", "agents")), int(given.get("seed", "0"))
    for name in names:
        if name in AGENTS and not (agents / AGENTS[name][0]).is_file():
            sys.exit(f"there is no {agents / AGENTS[name][0]}: name the folder of the agents, agents=...")
    for world in worlds(names, agents, seed):
        for path in write(world, Path(given["out"]), arms, seed):
            print(path)


def _score(given: dict[str, str]) -> None:
    packet = Path(given["packet"])
    key = json.loads(Path(given.get("key", packet.parents[1] / "keys" / f"{packet.stem}.json")).read_text())
    answers = json.loads(Path(given["answers"]).read_text())
    for group, (right, asked) in scores(key, answers).items():
        print(f"{group:>14}: {right} of {asked} right ({right / asked:.0%})")


if __name__ == "__main__":
    main(sys.argv[1:])
