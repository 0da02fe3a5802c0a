#!/bin/bash
# What the compiler cache and the cache of configure's answers save on real builds.
#
#   benches/cache.sh BUILD NEIGHBOUR          with $BM the program (default: target/release/bm)
#
# Makes BUILD with empty caches, then the same under a second name, then NEIGHBOUR (the next release, say), then BUILD
# under a third name with configure run both ways, which fails if its files differ. Prints ratios from what the
# prefixes say of themselves: wall time of `compile`, CPU time of `configure`, objects taken from the cache. Everything
# happens in a temporary root and cache; sources come as BM_MIRROR and BM_FROM say. Needs perl and ccache.
set -euo pipefail
[[ $# -eq 2 ]] || { sed -n '4p' "$0" | cut -c3-; exit 2; }

bm=$(realpath "${BM:-target/release/bm}")
dir=$(mktemp -d /tmp/bm-cache.XXXXXX)
chmod 755 "$dir"
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM
export BM_ROOT=$dir/root BM_CACHE=$dir/cache

"$bm" build --ccache on --name first "$1" >&2
"$bm" build --ccache on --name second "$1" >&2
"$bm" build --ccache on --name neighbour "$2" >&2
"$bm" build --ccache on --configure-cache check --name third "$1" >&2

perl -MJSON::PP -e '
  my %m = map { my $n = $_; open my $in, "<", "$ARGV[0]/$n/.bm/manifest.json" or die "$n: $!";
    ($n => decode_json(join "", <$in>)) } qw(first second neighbour third);
  my $time = sub { my ($n, $step, $what) = @_; (grep { $_->{name} eq $step } @{$m{$n}{times}})[0]{$what} };
  my $hits = sub { my $c = $m{shift()}{compiler_cache} or return "no cache";
    my $all = $c->{hits} + $c->{misses} + $c->{errors};
    sprintf "%d of %d objects (%.0f %%)", $c->{hits}, $all, 100 * $c->{hits} / ($all || 1) };
  printf "%-44s %s\n", "again under another name: from the cache", $hits->("second");
  printf "%-44s %.3f\n", "  compile, wall: warm / cold", $time->("second", "compile", "wall") / $time->("first", "compile", "wall");
  printf "%-44s %.3f\n", "  configure, CPU: seen before / clean", $time->("second", "configure", "cpu") / $time->("first", "configure", "cpu");
  printf "%-44s %s\n", "neighbouring release: from the cache", $hits->("neighbour");
  printf "%-44s %.3f\n", "  compile, wall: over a cold one", $time->("neighbour", "compile", "wall") / $time->("first", "compile", "wall");
  printf "%-44s %s\n", "configure both ways", $m{third}{configure_cache}{checked} ? "same files" : "NOT CHECKED";
' "$BM_ROOT"
