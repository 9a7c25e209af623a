# bash completion for ztstream

_ztstream() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} command=${COMP_WORDS[1]}
  local common='-T --threads --memory --progress --json -q --quiet -v --verbose -h --help'
  local input='--from --follow-links --npy-void'
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    local first='convert inspect verify extract diff bench'
    [[ $cur != -* ]] || first='-h --help --version'
    COMPREPLY=($(compgen -W "$first" -- "$cur"))
    return
  fi
  local values=
  case $prev in
    --spec) values='1.2 1.1 0.1' ;;
    --digest) values='none crc32c sha256 xxh3' ;;
    --on-overflow) values='error inf saturate' ;;
    --dequantize) values='f32 f16 bf16' ;;
    --quant) values='keep group' ;;
    --sparse) values='auto keep' ;;
    --progress) values='auto always never' ;;
    --from) values='safetensors npy npz gguf zt' ;;
    --to) values='safetensors npy npz gguf' ;;
    --npy-void) values='bf16 f8_e4m3fn f8_e5m2' ;;
    --dtype) values='f32 f16 bf16 f8_e4m3fn f8_e5m2' ;;
    -T|--threads|--memory|--chunk|--limit|--min-gain|--include|--exclude|--rename) return ;;
  esac
  if [ -n "$values" ]; then
    COMPREPLY=($(compgen -W "$values" -- "$cur"))
    return
  fi
  case $cur in
    -*)
      local options="$input $common"
      case $command in
        convert) options+=' -o --output --spec --zstd --min-gain --chunk --digest --dtype --on-overflow --dequantize --quant --sparse --include --exclude --rename --no-metadata -n --dry-run -f --force --no-sync' ;;
        verify) options+=' --against' ;;
        extract) options+=' -o --output --to -f --force --no-sync' ;;
        bench) options+=' --folder --limit --runs' ;;
        inspect|diff) ;;
        *) return ;;
      esac
      COMPREPLY=($(compgen -W "$options" -- "$cur"))
      ;;
    *)
      compopt -o filenames 2>/dev/null
      local IFS=$'\n'
      COMPREPLY=($(compgen -f -- "$cur"))
      ;;
  esac
}
complete -F _ztstream ztstream
