# fish completion for ztstream

set -l commands convert join inspect verify extract diff id bench
complete -c ztstream -n "not __fish_seen_subcommand_from $commands" -f -a "$commands"
complete -c ztstream -n "not __fish_seen_subcommand_from $commands" -l version -d 'Versions'
complete -c ztstream -s h -l help -d 'Options'

set -l any "__fish_seen_subcommand_from $commands"
set -l reads '__fish_seen_subcommand_from convert inspect verify extract diff id bench'
complete -c ztstream -n $any -s T -l threads -x -d 'Workers; 0: all usable'
complete -c ztstream -n $any -l memory -x -d 'Bytes of data under way at once'
complete -c ztstream -n $reads -l no-sign-request -d 'Ask S3 without credentials'
complete -c ztstream -n $any -l progress -x -a 'auto always never' -d 'When to show progress'
complete -c ztstream -n $any -l json -d 'Machine-readable output'
complete -c ztstream -n $any -s q -l quiet -d 'No progress, summary or warnings'
complete -c ztstream -n $any -s v -l verbose -d 'Say more'
complete -c ztstream -n $reads -l from -x -a 'safetensors npy npz gguf torch onnx hdf5 zt' -d 'Input format'
complete -c ztstream -n $reads -l follow-links -d 'Shards and external data may be links out of the folder'
complete -c ztstream -n $reads -l npy-void -x -a 'bf16 f8_e4m3fn f8_e5m2' -d "Element type of npy's |V arrays"
complete -c ztstream -n $reads -l sparse -x -a 'auto keep' -d 'scipy archives'
complete -c ztstream -n '__fish_seen_subcommand_from inspect' -l sort -x -a 'name size offset' -d 'Order of the tensors'
complete -c ztstream -n '__fish_seen_subcommand_from inspect' -l tree -d 'Fold names by their dots'

set -l writes '__fish_seen_subcommand_from convert join extract'
complete -c ztstream -n $writes -s o -l output -r -d 'The file to write'
complete -c ztstream -n $writes -s f -l force -d 'Replace an existing output'
complete -c ztstream -n $writes -l no-sync -d 'Do not wait until the disk has it'
complete -c ztstream -n '__fish_seen_subcommand_from convert' -l part-size -x -d 'Bytes of each part sent to s3://'
complete -c ztstream -n '__fish_seen_subcommand_from join' -l missing -d 'Print the numbers that are not there'
complete -c ztstream -n '__fish_seen_subcommand_from extract' -l to -x -a 'safetensors npz npy gguf' -d 'Output format'
complete -c ztstream -n '__fish_seen_subcommand_from verify' -l canonical -d 'It has to be in the canonical form of 2.0'
complete -c ztstream -n '__fish_seen_subcommand_from verify' -l against -r -d 'The inputs it was made of'
complete -c ztstream -n '__fish_seen_subcommand_from id' -l digest -x -a 'sha256 xxh3' -d 'Algorithm'
complete -c ztstream -n '__fish_seen_subcommand_from bench' -l folder -r -d 'Where to write a temporary file'
complete -c ztstream -n '__fish_seen_subcommand_from bench' -l limit -x -d 'Bytes each run takes at most'
complete -c ztstream -n '__fish_seen_subcommand_from bench' -l runs -x -d 'Runs of each measurement'

# The names of the tensors of the file on the line.
function __ztstream_tensors
    for file in (commandline -opc)[3..]
        string match -q -- '-*' $file; or test ! -e $file; or break
    end
    ztstream inspect --quiet --json -- $file 2>/dev/null | string match -rga '\{"name":"([^"\\\\]*)","shape"'
end
complete -c ztstream -n "__fish_seen_subcommand_from extract" -a '(__ztstream_tensors)' -d tensor

set -l convert '__fish_seen_subcommand_from convert'
complete -c ztstream -n $convert -l spec -x -a '2.0 1.2 1.1 0.1' -d 'Version to write'
complete -c ztstream -n $convert -l canonical -d 'Of 2.0: equal tensors make equal files'
complete -c ztstream -n $convert -l align -x -d 'Blobs begin at multiples of it'
complete -c ztstream -n $convert -l zstd -d 'Compress (=LEVEL, =huffman or =planes)'
complete -c ztstream -n "$convert; and string match -q -- '--zstd=*' (commandline -ct)" -f -a '--zstd=1 --zstd=3 --zstd=9 --zstd=19 --zstd=huffman --zstd=planes'
complete -c ztstream -n $convert -l min-gain -x -d 'Percent a component must shrink by'
complete -c ztstream -n $convert -l chunk -x -d 'Content of one zstd frame'
complete -c ztstream -n $convert -l digest -x -a 'none crc32c sha256 xxh3' -d 'Checksum of each component'
complete -c ztstream -n $convert -l dtype -x -a 'f32 f16 bf16 f8_e4m3fn f8_e5m2' -d '[REGEX=]TYPE'
complete -c ztstream -n $convert -l on-overflow -x -a 'error inf saturate' -d 'Numbers that do not fit'
complete -c ztstream -n $convert -l dequantize -x -a 'f32 f16 bf16' -d 'GGUF blocks to floats'
complete -c ztstream -n $convert -l quant -x -a 'keep group' -d 'Quantized modules'
complete -c ztstream -n $convert -l include -x -d 'Only tensors that match'
complete -c ztstream -n $convert -l exclude -x -d 'Not these'
complete -c ztstream -n $convert -l rename -x -d 's/REGEX/TEXT/'
complete -c ztstream -n $convert -l no-metadata -d 'Leave out the attributes of the file'
complete -c ztstream -n $convert -l shards -x -d 'Write so many files'
complete -c ztstream -n $convert -l shard-size -x -d 'Write files of so many bytes at most'
complete -c ztstream -n $convert -l shard -x -d 'Write only shard I of N'
complete -c ztstream -n $convert -s n -l dry-run -d 'Print the plan'
