# SPDX-License-Identifier: MIT
"""No file names a place of the machine that it was written on, or a server: what is fetched is
fetched by package name, and the one address, the models' hub, stands in models.json."""

import re
from collections.abc import Iterator
from pathlib import Path

from repository import ROOT, files, finish, name_of, text_of

# Written with brackets, so that this file passes its own check.
PATHS = re.compile(r"(?<![\w.~}])/(?:w[o]rk|r[o]ot|h[o]me/\w+|U[s]ers/\w+|t[m]p/\w+)/")
HOSTS = re.compile(r"p[y]pi\.org|python[h]osted|de[b]ian\.org|ub[u]ntu\.com|hugging[f]ace\.co\b")
MAY_NAME_THE_HUB = {ROOT / "models.json"}


def findings(path: Path) -> Iterator[str]:
    for number, line in enumerate((text_of(path) or "").splitlines(), 1):
        match = PATHS.search(line)
        if not match and path not in MAY_NAME_THE_HUB:
            match = HOSTS.search(line)
        if match:
            yield f"{name_of(path)}:{number}: names {match[0]!r}"


checked = files()
finish((finding for path in checked for finding in findings(path)), "machine paths", len(checked))
