# SPDX-License-Identifier: MIT
"""Measuring, and what was measured as data. The standard library only: this runs on a board as it was
flashed."""
