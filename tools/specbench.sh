#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Speculation against plain decoding on five prompts, up to the end of turn: speeds, and whether the
# output is the same. Exits with 77 until a chapter has SPEC. See tools/specbench.py --help.
exec "${PYTHON:-python3}" "$(dirname "$0")/specbench.py" "$@"
