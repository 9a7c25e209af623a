# fish completion for ztstream; scripts/reference.py writes it

set -l commands convert join inspect verify extract diff id bench
complete -c ztstream -n "not __fish_seen_subcommand_from $commands" -f -a "$commands"

# The names of the tensors of the file on the line.
function __ztstream_tensors
    for file in (commandline -opc)[3..]
        string match -q -- '-*' $file; or test ! -e $file; or break
    end
    ztstream inspect --quiet --json -- $file 2>/dev/null | string match -rga '\{"name":"([^"\\\\]*)","shape"'
end
complete -c ztstream -n "__fish_seen_subcommand_from extract" -a '(__ztstream_tensors)' -d tensor

complete -c ztstream -n '__fish_seen_subcommand_from convert' -s o -l output -r -d 'The .zt file, or - for standard output'
complete -c ztstream -n '__fish_seen_subcommand_from join' -s o -l output -r -d 'The .zt file that the shards were written for: DIR/model.zt'
complete -c ztstream -n '__fish_seen_subcommand_from extract' -s o -l output -r -d '.safetensors, .npz, .npy, .gguf; DIR/: .npy each; or -'
complete -c ztstream -n '__fish_seen_subcommand_from convert' -l spec -x -a '2.0 1.2 1.1 0.1' -d 'Version to write: 2.0, 1.2, 1.1 or 0.1'
complete -c ztstream -n '__fish_seen_subcommand_from convert' -l canonical -d 'Of 2.0: equal tensors make equal files'
complete -c ztstream -n '__fish_seen_subcommand_from convert' -l align -x -d 'Blobs begin at multiples of it'
complete -c ztstream -n '__fish_seen_subcommand_from convert' -l zstd -d 'Compress; LEVEL 1 to 19, negative, huffman or planes'
complete -c ztstream -n "__fish_seen_subcommand_from convert; and string match -q -- '--zstd=*' (commandline -ct)" -f -a '--zstd=1 --zstd=3 --zstd=9 --zstd=19 --zstd=huffman --zstd=planes'
complete -c ztstream -n '__fish_seen_subcommand_from convert' -l raw -d 'Decompress what a .zt input has compressed'
complete -c ztstream -n '__fish_seen_subcommand_from convert' -l min-gain -x -d 'Percent a component must shrink by'
complete -c ztstream -n '__fish_seen_subcommand_from convert' -l chunk -x -d 'Content of one zstd frame'
complete -c ztstream -n '__fish_seen_subcommand_from convert' -l digest -x -a 'none crc32c sha256 xxh3' -d 'none, crc32c, sha256 or xxh3'
complete -c ztstream -n '__fish_seen_subcommand_from id' -l digest -x -a 'sha256 xxh3' -d 'sha256 or xxh3'
complete -c ztstream -n '__fish_seen_subcommand_from convert' -s n -l dry-run -d 'Print the plan and write nothing'
complete -c ztstream -n '__fish_seen_subcommand_from join' -l missing -d 'Print the numbers of those that are not there'
complete -c ztstream -n '__fish_seen_subcommand_from extract' -l to -x -a 'safetensors npy npz gguf' -d 'safetensors, npy, npz or gguf; else by OUT'\''s suffix'
complete -c ztstream -n '__fish_seen_subcommand_from inspect' -l html -r -d 'Write a page for a browser, in one file, or - for standard output'
complete -c ztstream -n '__fish_seen_subcommand_from convert join inspect extract' -s f -l force -d 'Replace an existing output'
complete -c ztstream -n '__fish_seen_subcommand_from convert join inspect extract' -l no-sync -d 'Do not wait until the disk has it'
complete -c ztstream -n '__fish_seen_subcommand_from convert' -l part-size -x -d 'Bytes of each part sent to s3://'
complete -c ztstream -n '__fish_seen_subcommand_from inspect' -l sort -x -a 'name size offset' -d 'name, size or offset; else in the order of the file'
complete -c ztstream -n '__fish_seen_subcommand_from inspect' -l tree -d 'Fold names by their dots, with the size of each layer'
complete -c ztstream -n '__fish_seen_subcommand_from convert' -l shards -x -d 'Write N files, cut in the order of the input'
complete -c ztstream -n '__fish_seen_subcommand_from convert' -l shard-size -x -d 'Write files of at most SIZE decoded data'
complete -c ztstream -n '__fish_seen_subcommand_from extract' -l shard-size -x -d 'Write weights of a folder in files of at most SIZE'
complete -c ztstream -n '__fish_seen_subcommand_from convert' -l shard -x -d 'Write only shard I of N'
complete -c ztstream -n '__fish_seen_subcommand_from convert extract' -l dtype -x -a 'f32 f16 bf16 f8_e4m3fn f8_e5m2' -d 'TYPE, or keep, of matching names; the first rule wins'
complete -c ztstream -n '__fish_seen_subcommand_from convert extract' -l on-overflow -x -a 'error inf saturate' -d 'error, inf or saturate'
complete -c ztstream -n '__fish_seen_subcommand_from convert extract' -l dequantize -x -a 'f32 f16 bf16' -d 'Quantized GGUF blocks to f32, f16 or bf16'
complete -c ztstream -n '__fish_seen_subcommand_from convert' -l quant -x -a 'keep group' -d 'keep; group: one object a quantized module'
complete -c ztstream -n '__fish_seen_subcommand_from convert extract' -l include -x -d 'Only tensors whose name matches; repeatable'
complete -c ztstream -n '__fish_seen_subcommand_from convert extract' -l exclude -x -d 'Not these; repeatable'
complete -c ztstream -n '__fish_seen_subcommand_from convert extract' -l rename -x -d 'New names; repeatable, in order'
complete -c ztstream -n '__fish_seen_subcommand_from convert' -l no-metadata -d 'Leave out the attributes of the whole file'
complete -c ztstream -n '__fish_seen_subcommand_from verify' -l against -r -d 'The inputs it was made of; values are compared'
complete -c ztstream -n '__fish_seen_subcommand_from verify' -l canonical -d 'It has to be in the canonical form of 2.0'
complete -c ztstream -n '__fish_seen_subcommand_from convert inspect verify extract diff id bench' -l from -x -a 'safetensors npy npz gguf torch onnx hdf5 zt' -d 'safetensors npy npz gguf torch onnx hdf5 zt; or detected'
complete -c ztstream -n '__fish_seen_subcommand_from convert inspect verify extract diff id bench' -l follow-links -d 'Shards and external data may be links out of the folder'
complete -c ztstream -n '__fish_seen_subcommand_from convert inspect verify extract diff id bench' -l no-sign-request -d 'Ask S3 without credentials'
complete -c ztstream -n '__fish_seen_subcommand_from convert inspect verify extract diff id bench' -l files -x -a 'all none dense' -d 'Files that go along: all, none, dense, patterns'
complete -c ztstream -n '__fish_seen_subcommand_from convert inspect verify extract diff id bench' -l npy-void -x -a 'bf16 f8_e4m3fn f8_e5m2' -d 'Element type of npy'\''s '\''|V'\'' arrays, e.g. bf16'
complete -c ztstream -n '__fish_seen_subcommand_from convert inspect verify extract diff id bench' -l sparse -x -a 'auto keep' -d 'auto; keep: scipy archives stay dense'
complete -c ztstream -n '__fish_seen_subcommand_from bench' -l folder -r -d 'For a temporary file; else the input'\''s folder'
complete -c ztstream -n '__fish_seen_subcommand_from bench' -l limit -x -d 'Bytes each run takes at most'
complete -c ztstream -n '__fish_seen_subcommand_from bench' -l runs -x -d 'Runs of each measurement; the median counts'
complete -c ztstream -n '__fish_seen_subcommand_from convert join inspect verify extract diff id bench' -s T -l threads -x -d 'Workers; 0: all usable'
complete -c ztstream -n '__fish_seen_subcommand_from convert join inspect verify extract diff id bench' -l memory -x -d 'Limit on data in flight'
complete -c ztstream -n '__fish_seen_subcommand_from convert join inspect verify extract diff id bench' -l progress -x -a 'auto always never' -d 'auto, always or never'
complete -c ztstream -n '__fish_seen_subcommand_from convert join inspect verify extract diff id bench' -l json -d 'The result, or the error, as one JSON object'
complete -c ztstream -n '__fish_seen_subcommand_from convert join inspect verify extract diff id bench' -s q -l quiet -d 'No progress, summary or warnings'
complete -c ztstream -n '__fish_seen_subcommand_from convert join inspect verify extract diff id bench' -s v -l verbose -d 'Say more'
complete -c ztstream -s h -l help -d 'The options of the program or of a command'
complete -c ztstream -n "not __fish_seen_subcommand_from $commands" -l version -d 'Versions of the program, the formats, the packages'
