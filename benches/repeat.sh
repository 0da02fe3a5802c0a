#!/bin/sh
# What `bm build` costs when there is nothing to do, for 1 and for 1,000 finished prefixes, in CPU time, beside
# `true` and beside a make with nothing to do in as many small build directories.
#
#   benches/repeat.sh [RUNS]          with $BM the program to measure (default: target/release/bm)
#
# Builds one prefix of a small product of its own in a temporary directory and copies its manifest for the other
# 999, each sealed for its own name and identity, and each as long as that of a real server with link-time
# optimisation: evidence of about 500 kinds of units and 116 links, some 190 KB. Checks that bm finds all of them
# fresh, then runs it RUNS times (default 10) and prints user + system time per run, in milliseconds, and ratios.
# Needs a C compiler, make, tar, sha256sum, bash and 250 MB of disk; takes a minute. Nothing is left behind.
#
# The goal, for a release build: under 100 ms. The exit status says whether it was reached (0) or not (1). The
# directories of make are the smallest that are any: one makefile and four objects each. That of a real server
# has a thousand objects and dozens of makefiles.
set -eu

bm=$(realpath "${BM:-target/release/bm}")
runs=${1:-10}
builds=1000
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
cp -r "$dir/src" "$dir/fakebench-1.0"
tar -C "$dir" -czf "$dir/mirror/fakebench-1.0.tar.gz" fakebench-1.0
sum=$(sha256sum "$dir/mirror/fakebench-1.0.tar.gz" | cut -d' ' -f1)

{
  cat <<'END'
product = "fakebench"
description = "releases to measure with"
build-system = "autoconf"
series-parts = 1
smoke = "command"
smoke-command = ["bin/fk"]
versions = [
END
  # Only the first has an archive; of the others nothing but the pin is asked.
  n=0
  while [ "$n" -lt "$builds" ]; do
    echo "  { id = \"1.$n\", sha256 = \"$sum\" },"
    n=$((n + 1))
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

run "$bm" --quiet build fkb10_o2

# The evidence of a real build, in its shape and length.
awk 'BEGIN {
  for (i = 1; i <= 490; i++)
    printf "{\"compiler\":\"GNU C17 12.2.0\",\"file\":\"lib/postgresql/m%03d.so\",\"frame_pointer\":false,\"from\":\"command\",\"lto\":true,\"march\":\"native\",\"optimisation\":\"3\",\"units\":%d},", i % 116, i
}' > "$dir/units"
awk 'BEGIN {
  for (i = 1; i <= 115; i++) {
    printf "{\"argv\":[\"/usr/bin/gcc\""
    for (j = 1; j <= 45; j++) printf ",\"-Wsome-warning-%02d-%d\"", j, i
    printf "],\"file\":\"lib/postgresql/m%03d.so\",\"lto\":true,\"lto_jobs\":2},", i
  }
}' > "$dir/links"
# One manifest without its seal, name and identity, in the pieces that go between them.
manifest=$dir/root/fkb10_o2/.bm/manifest.json
identity=$(grep -o '"identity":"[0-9a-f]*"' "$manifest" | head -n 1 | cut -d'"' -f4)
awk -v identity="$identity" -v units="$dir/units" -v links="$dir/links" '
  function text(file,  line) { getline line < file; return line }
  {
    sub(/"self_sha256":"[0-9a-f]*",/, "@SEAL@")
    sub(/"units":\[/, "&" text(units))
    sub(/"links":\[/, "&" text(links))
    gsub(/fkb10_o2/, "@NAME@")
    gsub(identity, "@IDENTITY@")
    print
  }' "$manifest" > "$dir/manifest"
run "$bm" plan --yes --json 'fkb1*_o2' | grep -o '"name":"[^"]*"\|"identity":"[^"]*"' | cut -d'"' -f4 | paste - - |
  while read -r name identity; do
    into=$dir/root/$name/.bm
    [ "$name" = fkb10_o2 ] || mkdir -p "$into"
    sed "s/@NAME@/$name/g; s/@IDENTITY@/$identity/g" "$dir/manifest" > "$dir/text"
    # The seal is the hash of all but itself and the last line end.
    seal=$(sed 's/@SEAL@//' "$dir/text" | tr -d '\n' | sha256sum | cut -d' ' -f1)
    sed "s/@SEAL@/\"self_sha256\":\"$seal\",/" "$dir/text" > "$into/manifest.json"
  done

for n in $(seq "$builds"); do
  mkdir -p "$dir/make/$n"
  (
    cd "$dir/make/$n"
    printf 'all: a.o b.o c.o d.o\n%%.o: %%.c\n\tcp $< $@\n' > Makefile
    touch a.c b.c c.c d.c
    touch a.o b.o c.o d.o
  )
done

said() { # what a run says at its end
  run "$bm" build --yes "$@" 2>&1 | tail -n 1
}
all='fkb1*_o2'
for look in first second; do
  said "$all" | grep -q "0 built, $builds fresh" || { echo "the $look look does not find all fresh: $(said "$all")" >&2; exit 1; }
done

# Milliseconds of user and system time per run; bash measures to the millisecond, sh only to the tick.
measure() {
  run bash -c 'n=$1; shift; TIMEFORMAT="%U %S"
    time while ((n-- > 0)); do "$@" >/dev/null 2>&1 || exit 1; done' measure "$runs" "$@" 2>&1 |
    awk -v runs="$runs" '{ printf "%.2f", ($1 + $2) * 1000 / runs }'
}

bare=$(measure /bin/true)
one=$(measure "$bm" build fkb10_o2)
many=$(measure "$bm" build --yes "$all")
make=$(measure sh -c "for d in $dir/make/*; do make -s -C \"\$d\" || exit 1; done")
awk -v bare="$bare" -v one="$one" -v many="$many" -v make="$make" -v builds="$builds" 'BEGIN {
  printf "true                       %9.2f ms\n", bare
  printf "bm build (1 prefix)        %9.2f ms   %6.1f times true\n", one, one / bare
  printf "bm build (%d prefixes)   %9.2f ms   %6.1f times true, %.1f times one prefix\n", builds, many, many / bare, many / one
  printf "make (%d directories)    %9.2f ms   %6.1f times bm\n", builds, make, make / many
  exit many < 100 ? 0 : 1 }'
