#!/bin/sh
# What planning costs: CPU time and peak memory of `bm plan` for 10, 100, 1,000 and 10,000 cells.
#
#   benches/plan.sh                   with $BM the program to measure (default: target/release/bm)
#
# Plans releases of a product made for it: the shipped recipe of Postgres with 100 releases and 100 variants of
# its own. Nothing is fetched or built, but the compiler is asked, as before a build. Prints user + system time in
# seconds, the ratio to 10 cells, and the time per cell beyond the first ten; then the peak memory, where GNU
# time (`/usr/bin/time`) is there to tell it. Needs bash and awk; takes ten seconds. Nothing is left behind.
#
# The goals, for a release build: 10,000 cells in under a second and under 100 MB. The exit status says whether
# both were reached (0) or not (1).
set -eu

bm=$(realpath "${BM:-target/release/bm}")
recipe=$(dirname "$0")/../recipes/postgres.toml
dir=$(mktemp -d /tmp/bm-plan.XXXXXX)
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM
mkdir -p "$dir/overlay/recipes" "$dir/home"

# Another name, 100 releases from 10.0 to 19.9, and variants of seven atoms more; all else as it is shipped.
awk '
  function releases(  n, pin) {
    for (n = 100; n < 200; n++) {
      pin = sprintf("%040d", n)
      printf "  { id = \"%d.%d\", commit = \"%s\", sha256 = \"%s%s\" },\n", n / 10, n % 10, pin, pin, substr(pin, 17)
    }
  }
  function variants(  k, i, bit) {
    for (i = 0; i < 7; i++) printf "[[atoms]]\nname = \"x%d\"\ncflags = [\"-DX%d\"]\n", i, i
    print "[variants]"
    for (k = 0; k < 100; k++) {
      printf "v%02d = [\"%s\"", k, (k % 2 ? "o2" : "o3")
      if (int(k / 2) % 2) printf ", \"native\""
      if (int(k / 4) % 2) printf ", \"lto\""
      if (int(k / 8) % 2) printf ", \"nofp\""
      for (i = 0; i < 7; i++) if (int(k / 2 ^ i) % 2) printf ", \"x%d\"", i
      print "]"
    }
  }
  /^versions = \[/ { print; releases(); skip = 1; next }
  skip && /^\]/ { skip = 0 }
  /^\[variants\]/ { variants(); skip = 1; next }
  skip && /^\[variant-aliases\]/ { print "\n[variant-aliases]"; aliases = 1; next }
  aliases && /^[a-z0-9]/ { next }
  aliases && /^(#|\[)/ { skip = aliases = 0 }
  skip { next }
  { gsub(/product = "postgres"/, "product = \"planbench\""); gsub(/"pg\{/, "\"pb{"); gsub(/"pg_git_/, "\"pb_git_"); gsub(/"pgdistro"/, "\"pbdistro\""); print }
' "$recipe" > "$dir/overlay/recipes/planbench.toml"

run() {
  env -i PATH="$PATH" HOME="$dir/home" BM_ROOT="$dir/root" BM_CACHE="$dir/cache" BM_RECIPES="$dir/overlay" "$@"
}

# Seconds of user and system time of one of `$1` runs.
measure() {
  run bash -c 'n=$1; shift; TIMEFORMAT="%U %S"
    time while ((n-- > 0)); do "$@" >/dev/null 2>&1 || exit 1; done' measure "$@" 2>&1 |
    awk -v runs="$1" '{ printf "%.4f", ($1 + $2) / runs }'
}

worst=0
for row in '10 20 pb100_v0?' '100 20 pb100_v??' '1000 10 pb10?_v??' '10000 3 pb1??_v??'; do
  set -f
  set -- $row
  set +f
  picked=$(run "$bm" plan --yes "$3" 2>&1 >/dev/null | tail -n 1)
  case $picked in
    *" $1 builds of $1") ;;
    *) echo "the pattern does not pick $1 cells: $picked" >&2; exit 1 ;;
  esac
  cpu=$(measure "$2" "$bm" plan --yes "$3")
  [ "$1" = 10 ] && ten=$cpu
  awk -v cells="$1" -v cpu="$cpu" -v ten="$ten" 'BEGIN {
    printf "%6d cells  %8.4f s  %6.1f times 10 cells", cells, cpu, cpu / ten
    if (cells > 10) printf "  %7.1f us per cell", (cpu - ten) * 1e6 / (cells - 10)
    print "" }'
  worst=$cpu
done
memory=
if [ -x /usr/bin/time ]; then
  memory=$(run /usr/bin/time -f %M "$bm" --quiet plan --yes 'pb1??_v??' 2>&1 >/dev/null | tail -n 1)
  echo "peak memory   $((memory / 1024)) MB for 10,000 cells"
fi
awk -v cpu="$worst" -v memory="${memory:-0}" 'BEGIN { exit cpu < 1 && memory < 100 * 1024 ? 0 : 1 }'
