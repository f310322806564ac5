#!/bin/sh
# A night, tried again while its exit code says that this may help: night.sh CONFIG [options of dmqr run]
# The closing values are on standard output, as JSON; the last line of standard error says why it failed.
day="${NIGHT:-$(date -u -d yesterday +%F)}" # one date for all tries, also after midnight
for wait in 600 1200 2400 0; do
  dmqr run "$@" --date "$day" --json
  code=$?
  [ "$code" -eq 1 ] && [ "$wait" -gt 0 ] || exit "$code"
  sleep "${WAIT:-$wait}"
done
