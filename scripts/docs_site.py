"""Generate pages of the docs site from the code, so that they stay up to date: settings and commands.

mkdocs.yml loads it as a hook; `make docs` builds the site.
"""

import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
CONF = ROOT / "conf"
GROUPS = {
    "env": "The environment of the agent.",
    "policy": "The agent that is explained: loaded from a file, passed from Python, or trained by the run.",
    "outcomes": "Events and terms of the reward to predict; by default those of the environment.",
    "explainer": "The predictor that learns the outcomes.",
    "training": "When the explainer learns, and from which transitions.",
    "evaluation": "How the learned explainer is evaluated.",
    "tracking": "The MLflow store that tracks the run.",
    "experiment": "A combination of settings of all groups. Choose one with `tpd-run experiment=...`.",
    "hydra/launcher": "Where the jobs of a sweep run.",
}
SETTINGS = """# Settings

tpd is configured with [Hydra](https://hydra.cc). Choose an option of a group with `group=option`, and set any
key with `key=value`: `tpd-run env=taxi training.steps=1e6`. Unknown keys are errors.
`tpd-run experiment=paper --cfg job` prints the settings of a run without running it.

| group | |
|---|---|"""
COMMANDS = {
    "tpd-run": ("tpd.run.cli", "run", "Run an experiment, or a sweep of them."),
    "tpd-explain": ("tpd.run.cli", "explain", "Query a finished run."),
    "tpd-ui": ("tpd.run.cli", "ui", "Show the runs in MLflow."),
    "tpd-sync": ("tpd.run.cli", "sync", "Send tracking data that the store has not received."),
    "tpd-mcp": ("tpd.assistants.cli", "main", "Let a language model query runs, over MCP."),
}
UNTOLD = ("_target_", "_partial_", "defaults", "hydra")
MEANINGS = {
    "seed": "seed of all random numbers",
    "recording.episodes": "number of recorded episodes",
    "env.id": "id for `gymnasium.make`; `module:Id-v0` for your own environment",
    "env.action_names": "names of the actions, or of the parts of an action",
    "env.observation_names": "names of the entries of an observation",
    "env.max_episode_steps": "the time limit; by default that of the environment",
    "env.kwargs": "further arguments of `gymnasium.make`",
    "env.choice_names": "names of the choices of each part of an action",
    "env.path": "the RL-Zoo folder of the agent",
    "policy.path": "required: the agent's zip, or its RL-Zoo folder (`sb3_zip`); the dataset (`dataset`)",
    "policy.vec_normalize": "VecNormalize statistics: file (`sb3_zip`) or object (`sb3_model`); false: none",
    "policy.discount": "discount of the return",
    "policy.steps": "training steps of the agent",
    "policy.learning_rate": "learning rate of Q-learning",
    "policy.epsilon_start": "initial exploration rate",
    "policy.epsilon_end": "final exploration rate",
    "policy.epsilon_decay_steps": "steps over which the exploration rate decays",
    "policy.num_envs": "number of parallel environments",
    "explainer.horizon": "number of steps predicted ahead",
    "explainer.members": "models in the ensemble",
    "explainer.hidden": "units of each hidden layer",
    "explainer.learning_rate": "learning rate; each option below says how it changes",
    "explainer.batch_size": "transitions in an update",
    "explainer.replay_size": "capacity of the replay buffer, in transitions",
    "explainer.seed": "seed of the weights and the batches",
    "explainer.rollouts": "rollouts for each pair",
    "explainer.discount": "discount of the value functions that are decomposed",
    "explainer.step_size.rate": "the constant step size",
    "explainer.step_size.exponent": "the step size is 1 over the number of visits to this power",
    "explainer.dtype": "dtype of the tables",
    "training.alongside": "learn from the transitions of the policy's training",
    "training.steps": "transitions to collect; with `alongside`, after the policy's training",
    "training.num_envs": "number of parallel environments",
    "training.path": "required: the folder of a dataset (`dataset`), or a saved replay buffer (`buffer`)",
    "training.processes": "processes that collect or read the shards; null: one per core",
    "evaluation.episodes": "episodes of the policy whose states are evaluated",
    "evaluation.curve_episodes": "episodes whose states are evaluated for the learning curve",
    "evaluation.truth.moments": "number of moments that are rolled out",
    "evaluation.truth.rollouts": "rollouts for each moment",
    "tracking.experiment": "name of the MLflow experiment",
    "hydra/launcher.cpus_per_task": "Slurm's option of the same name",
    "hydra/launcher.mem_gb": "memory of a job",
    "hydra/launcher.timeout_min": "time limit of a job, in minutes",
}
"""Meanings of keys without a comment or docstring, or whose meaning differs between options."""
MOST = 4
"""Upper bound on the different defaults of a key shown in a table."""
LONGEST = 36
"""Upper bound on the characters of a default shown in a table."""


@dataclass(frozen=True)
class Setting:
    """One key of a YAML file."""

    key: str
    default: str
    comment: str


def settings(text: str) -> list[Setting]:
    """The keys of a YAML file with their defaults and comments, without keys inside lists."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    return list(_settings(text, root, "")) if isinstance(root, yaml.MappingNode) else []


def _settings(text: str, node: yaml.MappingNode, prefix: str) -> Iterator[Setting]:
    for key, value in node.value:
        name = f"{prefix}{key.value}"
        if key.value in UNTOLD or (isinstance(value, yaml.SequenceNode) and not value.flow_style):
            continue
        if isinstance(value, yaml.MappingNode) and not value.flow_style:
            yield from _settings(text, value, f"{name}.")
            continue
        default = text[value.start_mark.index : value.end_mark.index]
        rest = text[value.end_mark.index :].partition("\n")[0]
        yield Setting(name, default, rest.partition("# ")[2].strip())


def description(text: str) -> str:
    """The first comment of a YAML file."""
    lines = [line for line in text.splitlines() if not line.startswith("# @package")]
    comments = [line.removeprefix("#").strip() for line in lines if line.startswith("#")]
    first = next((place for place, line in enumerate(lines) if not line.startswith("#")), len(lines))
    return " ".join(comments[:first])


def target(text: str) -> str:
    """The `_target_` of a YAML file."""
    found = re.search(r"^_target_: ([\w.]+)", text, re.MULTILINE)
    return found[1] if found else ""


def _made(text: str) -> str:
    """A fallback description of a YAML file: the environment id, or the class of its target."""
    named = {each.key: each.default for each in settings(text)}
    return f"`{named.get('id') or target(text).rpartition('.')[2]}`"


def documented(name: str, key: str) -> str:
    """The description of a parameter in the docstring of a class or function."""
    module, _, attribute = name.rpartition(".")
    made = getattr(importlib.import_module(module), attribute) if module else None
    text = inspect.getdoc(made) or ""
    found = re.search(rf"^(?:\w+, )*{key}(?:, \w+)*: ((?:.|\n +)+)", text, re.MULTILINE)
    return " ".join(found[1].split()) if found else ""


def files_of(group: str) -> list[Path]:
    """The YAML files of a group, sorted by name."""
    return sorted((CONF / group).glob("*.yaml"))


def group_page(group: str) -> str:
    """All keys of a group in one table, followed by its files."""
    texts = {path.stem: path.read_text() for path in files_of(group)}
    lines = [f"# {group}", "", GROUPS[group], "", "| option | |", "|---|---|"]
    lines += [f"| [`{name}`](#{name}) | {description(text) or _made(text)} |" for name, text in texts.items()]
    if group != "experiment":
        lines += _table(group, texts)
    for name, text in texts.items():
        body = "\n".join(line for line in text.splitlines() if not line.startswith("# @package"))
        lines += ["", f"## {name} {{ #{name} }}", "", f"`{group}={name}`", "", "```yaml", body, "```"]
    return "\n".join(lines) + "\n"


def _table(prefix: str, texts: dict[str, str]) -> list[str]:
    """One row per key: its meaning, and its default in each file that sets it."""
    defaults: dict[str, dict[str, list[str]]] = {}
    meanings: dict[str, str] = {}
    for name, text in texts.items():
        made = target(text)
        for each in settings(text):
            defaults.setdefault(each.key, {}).setdefault(each.default, []).append(name)
            meaning = each.comment or (documented(made, each.key) if made else "")
            meanings[each.key] = meanings.get(each.key) or meaning_of(f"{prefix}.{each.key}", meaning)
    lines = ["", "## Keys", "", "| key | default | meaning |", "|---|---|---|"]
    for key, values in defaults.items():
        of = {value: f" ({', '.join(names)})" if len(values) > 1 else "" for value, names in values.items()}
        shown = "<br>".join(f"{_code(value)}{names}" for value, names in of.items())
        default = shown if len(values) <= MOST else "see below"
        lines.append(f"| `{prefix}.{key}` | {default} | {_prose(meanings[key])} |")
    return lines if defaults else []


def meaning_of(key: str, written: str) -> str:
    """The meaning of a key; keys within `kwargs` or `model` share the meaning of their last part."""
    if "explainer.model." in key:
        return written or "for the dynamics models, as for the network"
    return MEANINGS.get(key) or written or (MEANINGS["env.kwargs"] if key.startswith("env.kwargs.") else "")


def _code(value: str) -> str:
    short = value if len(value) <= LONGEST else f"{value[:LONGEST]}…"
    return f"`{_cell(short)}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def _prose(text: str) -> str:
    """A comment as Markdown; text in braces becomes code."""
    return _cell(text if "`" in text else re.sub(r"\{.*\}", lambda found: f"`{found[0]}`", text))


def main_page() -> str:
    """The page of the keys that belong to no group."""
    text = (CONF / "config.yaml").read_text()
    lines = [SETTINGS]
    lines += [f"| [`{group}`]({_page(group)}) | {told} |" for group, told in GROUPS.items()]
    lines += ["", "## Keys without a group", "", "| key | default | meaning |", "|---|---|---|"]
    lines += [
        f"| `{each.key}` | {_code(each.default)} | {_prose(meaning_of(each.key, each.comment))} |"
        for each in settings(text)
    ]
    return "\n".join([*lines, "", "## config.yaml", "", "```yaml", text.rstrip(), "```", ""])


def _page(group: str) -> str:
    return f"{group.rpartition('/')[2]}.md"


def commands_page() -> str:
    """What every command says of itself."""
    where = "After `make setup`, the commands are in `.venv/bin`."
    lines = ["---", "hide: [toc]", "---", "# Commands", "", where]
    for name, (module, function, told) in COMMANDS.items():
        lines += ["", f"## {name}", "", told, "", "```console", said(module, function), "```"]
    return "\n".join(lines) + "\n"


def said(module: str, function: str) -> str:
    """The help of a command, without the settings, which have their own pages."""
    code = f"import sys; sys.argv = ['{function}', '--help']; from {module} import {function}; {function}()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    text = done.stdout or done.stderr[done.stderr.index("usage:") :]
    return text.partition("\nSettings (key=value):")[0].strip()


def pages() -> dict[str, str]:
    """All generated pages, by path in docs/."""
    made = {"reference/settings/index.md": main_page(), "reference/commands.md": commands_page()}
    return made | {f"reference/settings/{_page(group)}": group_page(group) for group in GROUPS}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Called by mkdocs."""
    for path, text in pages().items():
        files.append(File.generated(config, path, content=text))
    return files
