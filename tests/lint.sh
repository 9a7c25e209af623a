#!/usr/bin/env bash
# Checks the house rules that no compiler checks (CONTRIBUTING.md explains them), and the formatting.
#
#   tests/lint.sh           every rule; exit status 1 if any is broken
#   tests/lint.sh --fix     formats the C++ sources in place first
#
# Looks at the files git tracks, or at every file of the source folders where there is no git.
set -euo pipefail
cd "$(dirname "$0")/.."

broken=0
rule() {  # rule TEXT COMMAND...: each line the command prints, "file:line: what", breaks the rule
  local text=$1 found
  shift
  found=$("$@")
  [ -z "$found" ] && return 0
  printf '%s\n%s\n\n' "$text" "$(sed 's/^/    /' <<<"$found")"
  broken=1
}

if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
  mapfile -t files < <(git ls-files -co --exclude-standard | while read -r file; do [ -f "$file" ] && echo "$file"; done)
else
  mapfile -t files < <(find . -path ./build -prune -o -type f -print | sed 's|^\./||')
fi
matching() { printf '%s\n' "${files[@]}" | grep -E "$1" || true; }
mapfile -t interfaces < <(matching '\.cppm$')
mapfile -t sources < <(matching '\.cc$')

mapfile -t cpp < <(matching '\.(cppm|cc|h)$')
search() { [ $# -lt 2 ] || grep -nE "$@" /dev/null || true; }  # search PATTERN FILE...

# ---- modules: what clang 19 compiles without a word, and wrongly -------------------------------------------------
rule 'No static and no unnamed namespace in an interface (.cppm): importers may get another function.' \
  search '^(static |namespace \{|namespace$)' "${interfaces[@]}"
rule 'No intrinsics, Highway or Abseil in an interface; Abseil is in std.cppm alone.' \
  search '#include *[<"](immintrin\.h|hwy/|absl/)' $(matching '\.cppm$' | grep -v '^modules/std/std\.cppm$')
module_units() { grep -lE '^(export )?module [a-z]' "$@" | grep -v '^modules/std/std\.cppm$'; }
rule 'A module unit imports zt.std: it includes no header of the standard library (but <new>, for placement), nor one that does.' \
  search '#include *<([a-mo-z_][a-z_0-9]*|n[a-df-z_][a-z_0-9]*|nlohmann/.*|simdjson\.h|re2/.*)>' \
  $(module_units "${interfaces[@]}" "${sources[@]}")
rule "A pair is made by make_pair or with its types: Debian 13's standard library has no guide for it where zt.std is imported." \
  search 'std::pair\{' $(module_units "${interfaces[@]}" "${sources[@]}")
rule 'No thread_local in a static library: libztstream could not be linked with it. An ObjectPool holds what threads reuse.' \
  search '^ *(static )?thread_local ' $(matching '^(modules|converters)/.*\.(cppm|cc|h)$')
rule 'SHA1() and SHA256() link all algorithms of libcrypto, 4 MB: Init, Update and Final do not.' \
  search '[^A-Za-z_0-9]SHA(1|256)\((reinterpret|[a-z])' $(matching '^(modules|converters)/.*\.(cc|h)$')
rule 'Headers that the standard library of Debian 12 lacks.' \
  search '#include *<(format|print|generator|flat_map|mdspan)>' "${cpp[@]}"
included_in_purview() {
  awk 'FNR == 1 { purview = 0 }
       /^(export )?module [a-z]/ { purview = 1 }
       purview && /^#[ \t]*include/ { print FILENAME ":" FNR ": " $0 }' "$@" /dev/null
}
rule 'Includes stand in the global module fragment, above the module line.' \
  included_in_purview "${interfaces[@]}" "${sources[@]}"
included_after_import() {
  awk 'FNR == 1 { imported = 0 }
       /^import / { imported = 1 }
       imported && /^#[ \t]*include/ { print FILENAME ":" FNR ": " $0 }' "$@" /dev/null
}
rule 'Includes come before imports.' included_after_import "${sources[@]}"
rule 'A kernel is a plain translation unit: no import, no module.' \
  search '^(export )?(import|module)[ ;]' $(matching '_kernel\.(cc|h)$')

# What an option of the program is called is the program's to say: C, C++ and Python have other words for it (WithAdvice).
program_options=$(grep -oE '^    \{k[A-Za-z| &~]+, [^,]+, "[a-z-]+", "' cli/args/options.cc | cut -d'"' -f2 | sort -u | paste -sd'|')
names_option() { search "$@" | grep -v '[ =]aws '"\|'aws " || true; }  # the tools of AWS have options of their own
rule 'A message of a library names an option or a command of the program.' \
  names_option "^[^/]*\"([^\"]*[^-a-z\"])?(--($program_options)([^-a-z]|\$)|(use|with) -f|ztstream (convert|inspect|verify|diff|extract) )" \
  $(matching '^(modules|converters|capi)/.*\.(cppm|cc|h)$')

rule 'Imports equal DEPS, and the table in docs/ARCHITECTURE.md equals both.' python3 -B tests/lint_modules.py

# ---- hosts -------------------------------------------------------------------------------------------------------
rule 'No key that holds a std::vector of numbers: on big-endian hosts libstdc++ 12 compares an eighth of its bytes. InlinedVector is right.' \
  search '(map|set)<(std::)?((pair|tuple)<[^>]*)?std::vector<|using \w*Keys? = std::vector<' "${cpp[@]}"
rule 'A number of 16 bits is std::uint16_t, a page is what sysconf says: not every host has _Float16, or pages of 4 KiB.' \
  search '_Float16|__fp16|k(Page|PageSize|PageBytes) *= *[0-9]' "${cpp[@]}"

# ---- size and shape ----------------------------------------------------------------------------------------------
too_long() {  # too_long LIMIT FILE...
  local limit=$1
  shift
  awk -v limit="$limit" 'FNR == limit + 1 { print FILENAME ": more than " limit " lines" }' "$@" /dev/null
}
rule 'An interface of more than 300 lines wants a partition.' too_long 300 "${interfaces[@]}"
rule 'A source of more than 600 lines (500 is the aim) has more than one topic.' \
  too_long 600 $(matching '\.cc$' | grep -v '^tests/')
without_purpose() {
  local file
  for file in "$@"; do
    case "$(head -n 1 "$file")" in '// '* | '/* '*) ;; *) echo "$file:1: $(head -n 1 "$file")" ;; esac
  done
}
rule 'The first line of a C++ file says its name and purpose.' without_purpose "${cpp[@]}"

# ---- nothing of the machine it was written on --------------------------------------------------------------------
mapfile -t text < <(matching '\.(cppm|cc|h|py|sh|md|txt|cmake|in|json|yml|yaml)$|(^|/)(run|\.clang-[a-z]+)$' |
  grep -vE '^tests/(lint\.sh|data/)')
rule 'No path of a machine.' search '(^|[^A-Za-z0-9_.])/(work|home|mnt)/[a-z]' "${text[@]}"
rule 'No package host: set-up uses the sources that the machine has.' \
  search '(https?|ftp)://[^/ ]*(mirror|debian\.org|deb\.|apt\.|archive\.|pypi|npmjs|crates\.io)' "${text[@]}"
rule 'No space at the end of a line.' search '[ 	]+$' $(matching '\.(cppm|cc|h|py|sh|cmake)$')

# ---- formatting --------------------------------------------------------------------------------------------------
# clang-format leaves comments alone.
over_100() { LC_ALL=C.UTF-8 grep -nE '.{101,}' "$@" /dev/null || true; }
rule 'No line of more than 100 columns.' over_100 $(matching '^(tests|bench|examples)/.*\.(cppm|cc|h)$')
if command -v clang-format-19 >/dev/null; then
  [ "${1:-}" != --fix ] || clang-format-19 -i "${cpp[@]}"
  unformatted() { clang-format-19 --dry-run "$@" 2>&1 | grep -E 'warning:|error:' || true; }
  rule 'Formatting: tests/lint.sh --fix mends it.' unformatted "${cpp[@]}"
else
  echo 'clang-format-19 is not installed (scripts/setup.sh --lint): formatting is not checked'
fi

[ $broken = 0 ] && echo "lint: ${#files[@]} files keep the rules"
exit $broken
