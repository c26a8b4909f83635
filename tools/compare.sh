#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The gate: greedy tokens equal llama.cpp's. MODEL=path tools/compare.sh [options of ./minfer compare]
exec "$(dirname "$0")/../minfer" compare "$@"
