#!/bin/bash
# What a matrix of real builds costs with bm, beside its CPU time over the cores and beside a plain script.
#
#   benches/matrix.sh [-j JOBS] [--no-script] BUILD...      with $BM the program (default: target/release/bm)
#   benches/matrix.sh                                       pgdistro_def pgdistro_o3_native
#
# The builds are made in a temporary root with empty caches of compiled objects, but with sources fetched before
# (BM_CACHE, BM_MIRROR and BM_FROM count as usual). The plain script is what one would write by hand: for each build,
# one after another, the same configure line into another prefix, `make -jJOBS`, `make install`; the source tree is
# laid out beforehand for both. Prints one table of ratios:
#
#   makespan / limit      wall time of `bm build` over its own CPU time divided by the jobs: 1.00 is a machine without
#                         an idle moment
#   makespan / script     wall time of `bm build` over that of the script
#   bm's own CPU          CPU time of the bm process over that of all it started
#   most compilers        most compilers seen running at once, by looking twice a second, and the budget
#   memory of bm          largest resident size of the bm process
#   nothing to do         CPU time of a second `bm build` of them all over that of `make` in the finished trees
#
# With KEEP_ROOT=DIR the prefixes stay below DIR. Needs perl, and git where the source is a commit.
set -euo pipefail

bm=$(realpath "${BM:-target/release/bm}")
jobs=$(nproc) script=yes
while [[ ${1:-} == -* ]]; do
  case $1 in
    -j) jobs=$2; shift 2 ;;
    --no-script) script=no; shift ;;
    *) sed -n '2,/^set/p' "$0" | grep '^#' | cut -c3-; exit 2 ;;
  esac
done
builds=("${@:-pgdistro_def}")
[[ $# -gt 0 ]] || builds=(pgdistro_def pgdistro_o3_native)

dir=$(mktemp -d /tmp/bm-matrix.XXXXXX)
chmod 755 "$dir"
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM
export BM_ROOT=${KEEP_ROOT:-$dir/root} BM_CACHE=${BM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/bm}
mkdir -p "$BM_ROOT"

"$bm" fetch "${builds[@]}" >&2
# Twice a second: compilers that run or wait for the disk and descend from process $1, and its largest size. A driver that
# waits for its compiler sleeps, and does not count.
sample() {
  perl -e '
    my ($top, $file) = @ARGV;
    my ($most, $peak) = (0, 0);
    while (-e "/proc/$top/stat") {
      my (%of, @busy);
      for my $stat (glob "/proc/[0-9]*/stat") {
        open my $in, "<", $stat or next;
        my ($pid, $comm, $state, $up) = (<$in> // "") =~ /^(\d+) \((.*)\) (\S) (\d+)/ or next;
        $of{$pid} = $up;
        push @busy, $pid if $state =~ /[RD]/ && $comm =~ /^(cc1|cc1plus|lto1.*|clang.*|ld|ld\.lld|as)$/;
      }
      my $n = grep { my $p = $_; $p = $of{$p} while $p && $p != $top; $p } @busy;
      $most = $n if $n > $most;
      if (open my $in, "<", "/proc/$top/status") { $peak = $1 if join("", <$in>) =~ /VmHWM:\s+(\d+)/; }
      open my $out, ">", $file; print $out "$most $peak\n"; close $out;
      select undef, undef, undef, 0.5;
    }' "$1" "$dir/sample"
}

# Runs a command; leaves wall seconds and CPU seconds of it and all its descendants in $wall and $cpu.
timed() {
  local TIMEFORMAT='%R %U %S' out
  { time "$@" > "$dir/out" 2> "$dir/err"; } 2> "$dir/time" || { cat "$dir/err" >&2; exit 1; }
  read -r wall user system < "$dir/time"
  cpu=$(awk "BEGIN { print $user + $system }")
}

with_bm() {
  "$bm" build -j "$jobs" --ccache off --configure-cache off --message-format json "${builds[@]}" &
  local pid=$!
  sample $pid &
  wait $pid
  wait
}

# The tree of a build in $dir/hand/NAME/src, and what one would type in $dir/hand/NAME/script.
lay_out() {
  local hand=$dir/hand/$1 commit sha mirror
  mkdir -p "$hand/src" "$hand/build"
  "$bm" show --json "$1" > "$hand/plan"
  read -r commit sha < <(perl -MJSON::PP -e '
    my $s = decode_json(join "", <STDIN>)->{sources}[0]; print $s->{commit} // "-", " ", $s->{sha256} // "-", "\n"' < "$hand/plan")
  if [[ $commit != - ]]; then
    for mirror in "$BM_CACHE"/mirrors/*.git; do
      if git -C "$mirror" cat-file -e "$commit" 2>/dev/null; then
        git -C "$mirror" archive "$commit" | tar -x -C "$hand/src"
      fi
    done
  else
    tar -x -C "$hand/src" --strip-components=1 -f "$BM_CACHE/downloads/$sha"
  fi
  perl -MJSON::PP -e '
    my ($p, $to, $jobs) = (decode_json(join "", <STDIN>), @ARGV);
    print "set -e\ncd \"\$(dirname \"\$0\")/build\"\n";
    for my $step (grep { @{$_->{argv}} } @{$p->{steps}}) {
      # By hand one installs in place.
      my @w = map { (my $w = $_) =~ s/\Q$p->{prefix}\E/$to/g; $w } grep { !/^DESTDIR=/ } @{$step->{argv}};
      splice @w, 1, 0, "-j$jobs" if $w[0] eq "make";
      print join(" ", map { (my $w = $_) =~ s/\x27/\x27\\\x27\x27/g; "\x27$w\x27" } @w), " > $step->{name}.log 2>&1\n";
    }' "$hand/prefix" "$jobs" < "$hand/plan" > "$hand/script"
}

by_hand() {
  local name begin
  for name in "${names[@]}"; do
    begin=$(date +%s.%N)
    env -i PATH="$PATH" HOME="$dir" LC_ALL=C sh "$dir/hand/$name/script" || { tail "$dir/hand/$name"/build/*.log >&2; exit 1; }
    awk "BEGIN { printf \"%s by hand: %.1f s\n\", \"$name\", $(date +%s.%N) - $begin }" >&2
  done
}

timed with_bm
bm_wall=$wall bm_cpu=$cpu
read -r most peak < "$dir/sample"
own=$(perl -MJSON::PP -ne 'my $e = decode_json($_); print $e->{own_cpu} if ($e->{event} // "") eq "run-ended"' < "$dir/out")
[[ $(grep -c '"result":"built"' "$dir/out") -gt 0 ]] || { echo 'nothing was built' >&2; exit 1; }

printf '%s\n' "builds: ${builds[*]}"
awk -v w="$bm_wall" -v c="$bm_cpu" -v j="$jobs" -v own="$own" -v most="$most" -v peak="$peak" 'BEGIN {
  printf "%-28s %8.1f s\n%-28s %8.1f s\n", "bm: makespan", w, "bm: CPU, all of it", c
  printf "%-28s %8.3f\n", "makespan / limit", w / (c / j)
  printf "%-28s %8.4f\n", "own CPU of bm / all CPU", own / c
  printf "%-28s %8d of %d\n%-28s %8.1f MB\n", "most compilers at once", most, j, "memory of bm", peak / 1024 }'
[[ $script == yes ]] || exit 0

names=()
for build in "${builds[@]}"; do
  while read -r name; do names+=("$name"); lay_out "$name"; done < <("$bm" path "$build" | xargs -n1 basename)
done
timed by_hand
cat "$dir/err"
awk -v w="$wall" -v c="$cpu" -v j="$jobs" -v bm="$bm_wall" 'BEGIN {
  printf "%-28s %8.1f s\n%-28s %8.3f\n%-28s %8.3f\n", "script: makespan", w, "script: makespan / limit", w / (c / j), "makespan bm / script", bm / w }'

# Nothing to do, both ways.
make_again() {
  local name
  for name in "${names[@]}"; do make -C "$dir/hand/$name/build" -s; done
}
bm_again() { "$bm" build "${builds[@]}"; }
timed make_again
make_cpu=$cpu
timed bm_again
grep -q '0 built' "$dir/err" || { cat "$dir/err" >&2; exit 1; }
awk -v m="$make_cpu" -v b="$cpu" 'BEGIN { printf "%-28s %8.4f  (%.3f s, make %.2f s)\n", "nothing to do: bm / make", b / m, b, m }'
