# SPDX-License-Identifier: MIT
"""What the Python tools share: GGUF files, models.json, the model cache, fetching, synthetic
weights."""
