#!/bin/sh
# What a second `bm build` of 20 finished prefixes costs, in CPU time, beside `true`.
#
#   benches/repeat.sh [RUNS]          with $BM the program to measure (default: target/release/bm)
#
# Builds 20 prefixes of a small product of its own in a temporary directory (a few seconds; needs a C
# compiler, make, tar, sha256sum, bash), checks that a second run finds all of them fresh, then runs it RUNS
# times (default 20) and prints user + system time per run of both, in milliseconds, and their ratio.
# The goal is under 50 ms for a release build; the exit status says whether it was reached (0) or not (1).
# Nothing is left behind.
set -eu

bm=$(realpath "${BM:-target/release/bm}")
runs=${1:-20}
dir=$(mktemp -d /tmp/bm-repeat.XXXXXX)
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM
chmod 755 "$dir"
mkdir -p "$dir/overlay/recipes" "$dir/mirror" "$dir/src" "$dir/home"

cat > "$dir/src/configure" <<'END'
#!/bin/sh
for arg; do case $arg in
  --prefix=*) prefix=${arg#*=} ;; CC=*) CC=${arg#*=} ;; CFLAGS=*) CFLAGS=${arg#*=} ;;
esac; done
cat > Makefile <<EOT
all: fk
fk: $(dirname "$0")/fk.c
	$CC -g $CFLAGS \$< -c -o fk.o && $CC -g $CFLAGS fk.o -o fk
install: all
	mkdir -p "\$(DESTDIR)$prefix/bin" && cp fk "\$(DESTDIR)$prefix/bin/fk"
EOT
END
chmod 755 "$dir/src/configure"
echo 'int main(void) { return 0; }' > "$dir/src/fk.c"

{
  cat <<'END'
product = "fakebench"
description = "20 releases to measure with"
build-system = "autoconf"
series-parts = 1
smoke = "command"
smoke-command = ["bin/fk"]
versions = [
END
  for n in $(seq 0 19); do
    cp -r "$dir/src" "$dir/fakebench-1.$n"
    tar -C "$dir" -czf "$dir/mirror/fakebench-1.$n.tar.gz" "fakebench-1.$n"
    sum=$(sha256sum "$dir/mirror/fakebench-1.$n.tar.gz" | cut -d' ' -f1)
    echo "  { id = \"1.$n\", sha256 = \"$sum\" },"
  done
  cat <<'END'
]
[names]
release = "fkb{version.compact}"
series = "fkb{version.series}"
build = "{release}_{variant}{_toolchain}"
git = "fkb_git_{commit9}"
[source.tarball]
urls = ["https://fakebench.example/fakebench-{version}.tar.gz"]
[[compile]]
args = ["all"]
[[install]]
args = ["install"]
[[atoms]]
name = "o2"
cflags = ["-O2"]
claims = { optimisation = "2" }
[variants]
o2 = ["o2"]
END
} > "$dir/overlay/recipes/fakebench.toml"

run() {
  env -i PATH="$PATH" HOME="$dir/home" BM_ROOT="$dir/root" BM_CACHE="$dir/cache" BM_RECIPES="$dir/overlay" \
    BM_MIRROR="https://fakebench.example/=$dir/mirror" "$@"
}

run "$bm" --quiet build 'fkb1*_o2'
run "$bm" build 'fkb1*_o2' 2>&1 | grep -q '0 built, 20 fresh' || { echo 'the second run is not fresh' >&2; exit 1; }

# Milliseconds of user and system time per run; bash measures to the millisecond, sh only to the tick.
measure() {
  run bash -c 'n=$1; shift; TIMEFORMAT="%U %S"
    time while ((n-- > 0)); do "$@" >/dev/null 2>&1 || exit 1; done' measure "$runs" "$@" 2>&1 |
    awk -v runs="$runs" '{ printf "%.2f", ($1 + $2) * 1000 / runs }'
}

bare=$(measure /bin/true)
again=$(measure "$bm" build 'fkb1*_o2')
awk -v bare="$bare" -v again="$again" 'BEGIN {
  printf "true            %7.2f ms\nbm build (20)   %7.2f ms\nratio           %7.1f\n", bare, again, again / bare
  exit again < 50 ? 0 : 1 }'
