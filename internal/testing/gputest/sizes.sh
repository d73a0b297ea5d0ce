#!/usr/bin/env bash
# sizes.sh DIR LIMIT: prints the sizes of what travels, in MiB: the files of the bundle DIR, and those of the checkout
# that git does not ignore. Fails if they are more than LIMIT together.
set -euo pipefail

# Sizes of what git does not ignore; it also lists files that were deleted.
checkout() { git ls-files -z --cached --others --exclude-standard 2>/dev/null | xargs -0r stat -c %s 2>/dev/null || true; }

{
  find "$1" -type f -printf '%s %P\n'
  checkout | awk '{sum += $1} END {print sum + 0, "checkout"}'
} | sort -rn | awk -v limit="$2" '
  {printf "%6.2f MiB  %s\n", $1 / 1048576, $2; sum += $1}
  END {
    printf "%6.2f MiB  in all, of %d\n", sum / 1048576, limit
    if (sum > limit * 1048576) {print "too much travels: carry fewer packages, or raise GPU_MIB" >"/dev/stderr"; exit 1}
  }'
