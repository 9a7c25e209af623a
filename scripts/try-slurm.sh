#!/usr/bin/env bash
# Starts a Slurm of one node in a temporary folder, converts a checkpoint with an array of 8 tasks, 2 at a time, as
# docs/CLUSTER.md says, and takes all of it down again: one task is killed and put back, the join waits for it; a shard is
# damaged and mended; some are lost and made again. All must end with the bytes of a run without Slurm.
#
#   scripts/try-slurm.sh        the program of build/release, or ZTSTREAM
#
# Needs Debian's slurmctld, slurmd, slurm-client, slurm-wlm-basic-plugins and munge, and root. Exit status: 0; 1 where
# something is wrong, with Slurm's logs; 77 where it cannot be tried here.
set -euo pipefail
cd "$(dirname "$0")/.."
program=$(readlink -f "${ZTSTREAM:-build/release/bin/ztstream}")

PATH=$PATH:/usr/sbin:/sbin
for command in slurmctld slurmd munged sbatch scontrol; do
  command -v $command >/dev/null || { echo "skipped: $command is not installed (slurmctld, slurmd, slurm-client, munge)"; exit 77; }
done
[ "$(id -u)" = 0 ] || { echo "skipped: slurmd has to be started by root"; exit 77; }

run=$(mktemp -d "${TMPDIR:-/tmp}/ztstream-slurm.XXXXXX")
pids=()
finish() {
  local status=$?
  [ $status = 0 ] || tail -n 20 "$run"/*.log "$run"/job-* 2>/dev/null || true
  scancel --quiet --user=root 2>/dev/null || true
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null || true; done
  rm -rf "$run"
  exit $status
}
trap finish EXIT
fail() { echo "try-slurm: $*" >&2; exit 1; }
within() {  # within SECONDS COMMAND...: until it succeeds
  local end=$((SECONDS + $1))
  shift
  until "$@"; do [ $SECONDS -lt $end ] || fail "waited in vain: $*"; sleep 0.2; done
}

# ---- a cluster ---------------------------------------------------------------------------------------------------
chmod 755 "$run"
mkdir -p "$run"/{state,spool,munge,jobs}
dd if=/dev/urandom of="$run/munge.key" bs=1024 count=1 status=none
chmod 400 "$run/munge.key"
munged --foreground --force --key-file="$run/munge.key" --socket="$run/munge/socket" \
  --pid-file="$run/munge/pid" --log-file="$run/munged.log" --seed-file="$run/munge/seed" >"$run/munged.out" 2>&1 &
pids+=($!)
host=$(hostname -s) port=$((20000 + $$ % 20000))
cat >"$run/slurm.conf" <<CONF
ClusterName=try
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$run/munge/socket
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,bf_interval=1,sched_interval=1
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
JobCompType=jobcomp/none
MpiDefault=none
SwitchType=switch/none
ReturnToService=2
SlurmctldPort=$port
SlurmdPort=$((port + 1))
StateSaveLocation=$run/state
SlurmdSpoolDir=$run/spool
SlurmctldPidFile=$run/slurmctld.pid
SlurmdPidFile=$run/slurmd.pid
SlurmctldLogFile=$run/slurmctld.log
SlurmdLogFile=$run/slurmd.log
MinJobAge=600
JobRequeue=1
KillWait=5
NodeName=$host NodeAddr=127.0.0.1 CPUs=$(nproc) RealMemory=2000 State=UNKNOWN
PartitionName=try Nodes=$host Default=YES MaxTime=INFINITE State=UP
CONF
echo "CgroupPlugin=cgroup/v1" >"$run/cgroup.conf"
export SLURM_CONF=$run/slurm.conf
within 10 test -S "$run/munge/socket"
slurmctld -D -f "$SLURM_CONF" >"$run/slurmctld.out" 2>&1 &
pids+=($!)
slurmd -D -f "$SLURM_CONF" >"$run/slurmd.out" 2>&1 &
pids+=($!)
idle() { [ "$(sinfo -h -o %T 2>/dev/null)" = idle ]; }
within 60 idle
echo "a Slurm of one node with $(nproc) processors is up"

# ---- the checkpoint, and what is to come out ----------------------------------------------------------------------
/usr/bin/python3 -B tests/lib/make_safetensors.py "$run/in.safetensors" --tensors 64 --shape 512x512
options=(--zstd=19 --no-sync)  # slow enough to be killed on the way
mkdir "$run/want" "$run/out"
"$program" convert -q "$run/in.safetensors" -o "$run/want/model.zt" --shards 8 "${options[@]}"

# Task 3 is killed half-way when it runs for the first time, as if its node had died; then it waits to be put back.
cat >"$run/ztstream" <<WRAPPER
#!/bin/bash
if [ "\${SLURM_ARRAY_TASK_ID:-}:\${SLURM_RESTART_COUNT:-0}:\$1" = 3:0:convert ] && [ ! -e "$run/killed" ]; then
  "$program" "\$@" &
  until compgen -G "$run/out/.model-00003-*-tmp" >/dev/null; do sleep 0.01; done
  sleep 0.1
  kill -9 \$!
  touch "$run/killed"
  exec sleep 300
fi
exec "$program" "\$@"
WRAPPER
chmod +x "$run/ztstream"
export ZTSTREAM=$run/ztstream
submit() { sbatch --parsable --chdir="$run/jobs" --output="$run/job-%A_%a.log" --cpus-per-task=1 --mem=100 "$@"; }
convert() {  # convert ARRAY [OPTION...]
  local array=$1
  shift
  submit --array="$array" scripts/slurm/convert.sbatch 8 "$run/out/model.zt" "$run/in.safetensors" "${options[@]}" "$@"
}
ended() { ! squeue -h -j "$1" 2>/dev/null | grep -q .; }
exits() { scontrol show job "$1" | grep -o 'ExitCode=[0-9]*' | sort -u | cut -d = -f 2 | tr '\n' ' '; }
same() { diff -r "$run/want" "$run/out" >&2 || fail "the shards differ from those of a run without Slurm"; }

# ---- an array, a task that is killed, a join that waits -------------------------------------------------------------
array=$(convert 1-8%2)
join=$(submit --dependency="afterok:$array" --kill-on-invalid-dep=yes scripts/slurm/join.sbatch 8 "$run/out/model.zt")
within 120 test -e "$run/killed"
! [ -e "$run/out/model-00003-of-00008.zt" ] || fail "a killed task left a shard"
scontrol requeue "${array}_3"  # what Slurm itself does when a node dies
waiting() { scontrol show job "${array}_3" | grep -q 'JobState=PENDING'; }
within 60 waiting
scontrol update JobId="${array}_3" StartTime=now  # instead of the two minutes that Slurm waits
within 300 ended "$array"
within 120 ended "$join"
[ "$(exits "$array")" = "0 " ] || fail "tasks ended with $(exits "$array")"
[ "$(exits "$join")" = "0 " ] || fail "the join ended with $(exits "$join")"
same
"$program" verify "$run/out/model.zt.index.json" --against "$run/in.safetensors"
echo "an array of 8, 2 at a time: one task killed and put back, joined after it"

# ---- all of it again: nothing to do -------------------------------------------------------------------------------
again=$(convert 1-8)
within 120 ended "$again"
[ "$(exits "$again")" = "0 " ] && [ "$(cat "$run"/job-"${again}"_*.log | grep -c 'kept, it is whole')" = 8 ] ||
  fail "the array that was submitted again did not keep what was there"
same
echo "submitted again: 8 shards kept"

# ---- a shard that is damaged, and some that are lost -----------------------------------------------------------------
shard=$run/out/model-00005-of-00008.zt
printf '\377' | dd of="$shard" bs=1 seek=5000 conv=notrunc status=none
! "$program" verify -q "$run/out/model.zt.index.json" 2>/dev/null || fail "verify found no damage"
refused=$(convert 5)
within 60 ended "$refused"
[ "$(exits "$refused")" = "3 " ] || fail "a damaged shard was not refused: $(exits "$refused")"
mended=$(convert 5 -f)
within 60 ended "$mended"
same
rm "$run"/out/model-0000{2,6,7}-of-00008.zt
missing=$("$program" join --missing "$run"/out/model-*-of-00008.zt)
[ "$missing" = 2,6-7 ] || fail "missing: $missing"
rest=$(convert "$missing")
within 120 ended "$rest"
same
echo "a shard damaged, refused and mended; three lost and made again with --array=$missing"
