# SPDX-License-Identifier: MIT
"""The one exception that the tools turn into a one-line message and an exit status."""


class Failure(Exception):
    """Something a person has to know about and can act on; its text is one line.

    `status` is the exit status: 1 for a failure, 2 for wrong usage.
    """

    def __init__(self, message: str, status: int = 1):
        super().__init__(" ".join(message.split()))
        self.status = status
