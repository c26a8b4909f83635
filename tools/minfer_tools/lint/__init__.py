# SPDX-License-Identifier: MIT
"""The rules that keep the chapters one story: tools/lint_chapters.py runs them."""
