#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Two chapters: speed in turns, and how often they predict the same token under teacher forcing.
#   MODEL=path tools/ab.sh 06 07 [options of ./minfer bench]
if [ $# -lt 2 ] || [ "${1#-}" != "$1" ] || [ "${2#-}" != "$2" ]; then
  sed -n '3,4s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
exec "$(dirname "$0")/../minfer" bench -p 0 --ab "$@"
