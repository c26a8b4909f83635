#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Steady decoding without an early stop: MODEL=path tools/speed.sh [options of ./minfer bench]
exec "$(dirname "$0")/../minfer" bench -p 0 -n 128 --check-cases 0 "$@"
