# bash completion for ztstream

# The names of a file's tensors, one a line: those a line can hold.
_ztstream_tensors() {
  ztstream inspect --quiet --json -- "$1" 2>/dev/null |
    grep -oE '\{"name":"[^"\\]*","shape"' | cut -d '"' -f 4
}

_ztstream() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} command=${COMP_WORDS[1]}
  local common='-T --threads --memory --progress --json -q --quiet -v --verbose -h --help'
  local input='--from --follow-links --no-sign-request --npy-void --sparse'
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    local first='convert join inspect verify extract diff id bench'
    [[ $cur != -* ]] || first='-h --help --version'
    COMPREPLY=($(compgen -W "$first" -- "$cur"))
    return
  fi
  local values=
  # With '=' among the characters that end a word, as usual, --zstd=9 comes as three words.
  if [[ $cur == --zstd=* || $prev == --zstd && $cur == = || $prev == = && ${COMP_WORDS[COMP_CWORD - 2]} == --zstd ]]; then
    local whole=; [[ $cur != --zstd=* ]] || whole=--zstd=
    COMPREPLY=($(compgen -P "$whole" -W '1 3 9 19 huffman planes' -- "${cur##*=}"))
    return
  fi
  case $prev in
    --spec) values='2.0 1.2 1.1 0.1' ;;
    --digest) values='none crc32c sha256 xxh3' ;;
    --on-overflow) values='error inf saturate' ;;
    --dequantize) values='f32 f16 bf16' ;;
    --quant) values='keep group' ;;
    --sparse) values='auto keep' ;;
    --sort) values='name size offset' ;;
    --progress) values='auto always never' ;;
    --from) values='safetensors npy npz gguf torch onnx hdf5 zt' ;;
    --to) values='safetensors npy npz gguf' ;;
    --npy-void) values='bf16 f8_e4m3fn f8_e5m2' ;;
    --dtype) values='f32 f16 bf16 f8_e4m3fn f8_e5m2' ;;
    -T|--threads|--memory|--align|--chunk|--shards|--shard-size|--shard|--part-size|--limit|--min-gain|--include|--exclude|--rename) return ;;
  esac
  if [ -n "$values" ]; then
    COMPREPLY=($(compgen -W "$values" -- "$cur"))
    return
  fi
  case $cur in
    -*)
      local options="$input $common"
      case $command in
        join) options="$common -o --output --missing -f --force --no-sync" ;;
        convert) options+=' -o --output --spec --canonical --align --zstd --min-gain --chunk --digest --dtype --on-overflow --dequantize --quant --include --exclude --rename --no-metadata --shards --shard-size --shard --part-size -n --dry-run -f --force --no-sync' ;;
        verify) options+=' --against --canonical' ;;
        extract) options+=' -o --output --to -f --force --no-sync' ;;
        bench) options+=' --folder --limit --runs' ;;
        id) options+=' --digest' ;;
        inspect) options+=' --sort --tree' ;;
        diff) ;;
        *) return ;;
      esac
      COMPREPLY=($(compgen -W "$options" -- "$cur"))
      ;;
    *)
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
      ;;
  esac
}
complete -F _ztstream ztstream
