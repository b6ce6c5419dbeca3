# Shared by the scripts of this folder (bash, sourced). Everything that the scripts say goes to standard error: standard
# output belongs to the program that is run.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }
die() { say "$*"; exit 2; }

# ccache lives in the home folder, or under build/ where there is no writable home (build machines). Checkouts in different
# folders do not share entries: a precompiled header names the folder that it was made in.
if [ -z "${CCACHE_DIR:-}" ] && ! { [ -n "${HOME:-}" ] && mkdir -p "$HOME/.cache" 2>/dev/null && [ -w "$HOME/.cache" ]; }; then
  export CCACHE_DIR="$root/build/ccache"
fi

# Compilers at once: one a core, but no more than memory holds (an actor file under a sanitizer takes up to 1.5 GB).
jobs_at_once() {
  local cores gigabytes
  cores=$(nproc)
  gigabytes=$(awk '/^MemAvailable/ { print int($2 / 1500000) }' /proc/meminfo 2>/dev/null || echo "$cores")
  [ "$gigabytes" -ge 1 ] || gigabytes=1
  [ "$cores" -le "$gigabytes" ] && echo "$cores" || echo "$gigabytes"
}

# progress TITLE LOG COMMAND...: runs a long command, keeps its output in LOG, shows one moving line on a terminal and a line
# every 30 seconds elsewhere; on failure shows the part of the log that says why.
progress() {
  local title=$1 log=$2 line last=$SECONDS status
  shift 2
  mkdir -p "${log%/*}"
  : >"$log"
  set +e
  NINJA_STATUS='[%f/%t] ' "$@" </dev/null 2>&1 | while IFS= read -r line; do
    printf '%s\n' "$line" >>"$log"
    case "$line" in
      \[*/*\]\ *) line=${line%%]*}] ;;
      *) continue ;;
    esac
    if [ -t 2 ]; then
      printf '\r%s: %s %s ' "${0##*/}" "$title" "$line" >&2
    elif ((SECONDS - last >= 30)); then
      say "$title $line"
      last=$SECONDS
    fi
  done
  status=${PIPESTATUS[0]}
  set -e
  [ -t 2 ] && printf '\r\033[K' >&2
  if [ "$status" -ne 0 ]; then
    say "$title failed; the end of $log:"
    { grep -E -m 40 -A 6 '(error|FAILED|CMake Error)' "$log" || tail -n 40 "$log"; } | head -n 120 >&2
    exit 1
  fi
}

# build_preset PRESET [TARGET...]: configures when needed and builds.
build_preset() {
  local preset=$1 dir=$root/build/$1 start=$SECONDS fresh=
  shift
  mkdir -p "$dir"
  if [ -e "$dir/CMakeCache.txt" ] && ! grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$root" "$dir/CMakeCache.txt"; then
    fresh=--fresh # the checkout was moved
  fi
  if [ -n "$fresh" ] || [ ! -e "$dir/build.ninja" ] || [ "$root/CMakePresets.json" -nt "$dir/build.ninja" ]; then
    say "configuring build/$preset"
    (cd "$root" && progress configure "$dir/configure.log" cmake $fresh --preset "$preset")
    { grep '^-- troupe ' "$dir/configure.log" || true; } | sed 's/^-- //' | while IFS= read -r line; do say "$line"; done
  fi
  say "building build/$preset ${*:+($*) }with $(jobs_at_once) jobs"
  progress "build $preset" "$dir/build.log" ninja -C "$dir" -j "$(jobs_at_once)" "$@"
  if ((SECONDS - start > 5)); then
    say "built build/$preset in $((SECONDS - start)) s"
  fi
}
