# SPDX-License-Identifier: MIT
"""What all tests in Python share."""

import signal

# A test run in the background of a script inherits that Ctrl-C is ignored, and would hand that on to
# the programs whose Ctrl-C is tested.
signal.signal(signal.SIGINT, signal.default_int_handler)
