# bash completion for ztstream; scripts/reference.py writes it

# The names of a file's tensors, one a line: those a line can hold.
_ztstream_tensors() {
  ztstream inspect --quiet --json -- "$1" 2>/dev/null |
    grep -oE '\{"name":"[^"\\]*","shape"' | cut -d '"' -f 4
}

_ztstream() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} command=${COMP_WORDS[1]}
  local options values=
  COMPREPLY=()
  case $command in
    convert) options='-o --output --spec --canonical --align --zstd --raw --min-gain --chunk --digest -n --dry-run --each --to -f --force --no-sync --part-size --resume --shards --shard-size --shard --dtype --on-overflow --allow-loss --dequantize --quant --include --include-from --exclude --rename --no-metadata --set --unset --from --base --variant --follow-links --no-sign-request --profile --region --endpoint-url --header --files --npy-void -T --threads --memory --progress --json -q --quiet -v --verbose -h --help' ;;
    join) options='-o --output --missing -f --force --no-sync --json -q --quiet -h --help' ;;
    inspect) options='--html -f --force --no-sync --sort --stats --names -0 --null --tree --include --include-from --exclude --from --base --variant --follow-links --no-sign-request --profile --region --endpoint-url --header --files --npy-void -T --threads --memory --progress --json -q --quiet -v --verbose -h --help' ;;
    show) options='--from --base --variant --follow-links --no-sign-request --profile --region --endpoint-url --header --files --npy-void -T --threads --memory --progress --json -q --quiet -h --help' ;;
    verify) options='--dtype --on-overflow --allow-loss --dequantize --quant --include --include-from --exclude --rename --no-metadata --set --unset --against --canonical --from --base --variant --follow-links --no-sign-request --profile --region --endpoint-url --header --files --npy-void -T --threads --memory --progress --json -q --quiet -h --help' ;;
    extract) options='-o --output -n --dry-run --to -f --force --no-sync --resume --shard-size --dtype --on-overflow --allow-loss --dequantize --include --include-from --exclude --rename --set --unset --from --base --variant --follow-links --no-sign-request --profile --region --endpoint-url --header --files --npy-void -T --threads --memory --progress --json -q --quiet -v --verbose -h --help' ;;
    apply) options='--no-sign-request --profile --region --endpoint-url --header -T --threads --memory --progress --json -q --quiet -h --help' ;;
    diff) options='--dequantize --include --include-from --exclude --rename --atol --rtol --attributes --from --base --variant --follow-links --no-sign-request --profile --region --endpoint-url --header --files --npy-void -T --threads --memory --progress --json -q --quiet -v --verbose -h --help' ;;
    id) options='--digest --include --include-from --exclude --from --base --variant --follow-links --no-sign-request --profile --region --endpoint-url --header --files --npy-void -T --threads --memory --progress --json -q --quiet -h --help' ;;
  esac
  if [ "$COMP_CWORD" -eq 1 ]; then
    values='convert join inspect show verify extract apply diff id'
    [[ $cur != -* ]] || values='-h --help --version'
    COMPREPLY=($(compgen -W "$values" -- "$cur"))
    return
  fi
  # With '=' among the characters that end a word, as usual, --zstd=9 comes as three words.
  if [[ $cur == --zstd=* || $prev == --zstd && $cur == = || $prev == = && ${COMP_WORDS[COMP_CWORD - 2]} == --zstd ]]; then
    local whole=; [[ $cur != --zstd=* ]] || whole=--zstd=
    COMPREPLY=($(compgen -P "$whole" -W '1 3 9 19 huffman planes' -- "${cur##*=}"))
    return
  fi
  case $command:$prev in
    *:--spec) values='2.0 1.2 1.1 0.1' ;;
    convert:--digest) values='none crc32c sha256 xxh3' ;;
    id:--digest) values='sha256 xxh3' ;;
    convert:--to) values='safetensors disk-delta disk-delta-overwrite' ;;
    extract:--to) values='safetensors npy npz gguf' ;;
    *:--sort) values='name size offset' ;;
    *:--dtype) values='f32 f16 bf16 f8_e4m3fn f8_e5m2' ;;
    *:--on-overflow) values='error inf saturate' ;;
    *:--dequantize) values='f32 f16 bf16' ;;
    *:--quant) values='keep group' ;;
    *:--attributes) values='tensors none all' ;;
    *:--from) values='safetensors npy npz gguf torch onnx hdf5 zt' ;;
    *:--files) values='all none' ;;
    *:--npy-void) values='bf16 f8_e4m3fn f8_e5m2' ;;
    *:--progress) values='auto always never' ;;
    *:--align|*:--min-gain|*:--chunk|*:--part-size|*:--shards|*:--shard-size|*:--shard|*:--include|*:--exclude|*:--rename|*:--set|*:--unset|*:--atol|*:--rtol|*:--variant|*:--profile|*:--region|*:--endpoint-url|*:--header|*:-T|*:--threads|*:--memory) return ;;
  esac
  if [ -n "$values" ]; then
    COMPREPLY=($(compgen -W "$values" -- "$cur"))
    return
  fi
  if [[ $cur == -* ]]; then
    COMPREPLY=($(compgen -W "$options" -- "$cur"))
    return
  fi
  # Behind extract's file come names of its tensors.
  if [[ $command == extract && $prev != -o && $prev != --output && $prev != --to && $prev != extract ]]; then
    local word file=
    for word in "${COMP_WORDS[@]:2:COMP_CWORD-2}"; do [[ $word == -* || ! -e $word ]] || { file=$word; break; }; done
    if [ -n "$file" ]; then
      local IFS=$'\n'
      COMPREPLY=($(compgen -W "$(_ztstream_tensors "$file")" -- "$cur"))
      return
    fi
  fi
  compopt -o filenames 2>/dev/null
  local IFS=$'\n'
  COMPREPLY=($(compgen -f -- "$cur"))
}
complete -F _ztstream ztstream
