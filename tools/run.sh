#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Streams an answer: MODEL=path tools/run.sh "PROMPT" [options of ./minfer run]
exec "$(dirname "$0")/../minfer" run "$@"
