# SPDX-License-Identifier: MIT
# The sources as Doxygen reads them, line for line.

# It takes "[M, K]: weights" for the definition of a link, and drops it.
s|///< \[|///< \\[|

# It loses a last parameter's comment if `{` comes first: the brace moves to the next line.
/) {  *\/\/\/</{
s|) {\( *///<\)|)\1|
n
s|^|{|
}
