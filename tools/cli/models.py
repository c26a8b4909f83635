# SPDX-License-Identifier: MIT
"""From the name of a model to the path of its file, fetched first where it must be."""

from __future__ import annotations

import os
from pathlib import Path

from cli import ROOT, build, places, system, venv
from cli.console import USAGE, answer, say
from minfer_tools import cache, catalogue
from minfer_tools.errors import Failure

GET_MODEL = ROOT / "tools" / "get_model"


def find(wanted: str | None) -> Path | None:
    """The file of a model that is on this machine, without asking the network: a name of models.json
    (even where a file is called the same), a path, or where neither is given what MODEL says, else
    the first default model that is here."""
    models = catalogue.load()
    if wanted == "":
        raise Failure("--model: found nothing, expected a model's name or path", USAGE)
    wanted = wanted or os.environ.get("MODEL")
    if not wanted:
        model = cache.find_default(models)
        if model and model.name != models.default[0]:
            say(f"model: {model.name}; {models.default[0]} is not on this machine "
                f"(./minfer model {models.default[0]} fetches it)")
        return cache.find(model) if model else None
    if wanted not in models.models and is_path(wanted):
        return cache.check_content(Path(wanted))
    return cache.find(models[wanted])


def is_path(wanted: str) -> bool:
    return os.sep in wanted or wanted.endswith(".gguf") or os.path.exists(wanted)


def fetch_needs() -> tuple[system.Need, ...]:
    """What fetching a model takes of the system."""
    return system.FETCH_NEEDS + (() if venv.is_ready(venv.TOOLS) else system.PYTHON_NEEDS)


def resolve(wanted: str | None, install: bool = True) -> Path:
    """The same, but what is missing is fetched by tools/get_model, which has its own messages."""
    return find(wanted) or fetch(wanted, install)


def fetch(wanted: str | None, install: bool = True) -> Path:
    places.make(cache.minfer_cache())
    system.ensure(fetch_needs(), build.log_dir(), install)
    python = venv.ensure(venv.TOOLS, build.log_dir(), install)
    return Path(answer("get_model", [python, GET_MODEL, wanted or "--default"]))
