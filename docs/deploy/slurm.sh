#!/bin/bash
# One run of anchorscope on several nodes of a SLURM cluster:   sbatch slurm.sh study.yaml /shared/runs --data /shared/qa
#
# The study says    engine: {kind: ray, replicas: 16, gpus_per_replica: 2, cpus_per_replica: 8}
# /shared/runs (or s3://bucket/runs), the models (HF_HOME, or their folders), the question sets (--data) and this
# environment must be the same place on every node. What follows the place of runs is given to `anchorscope run`.
# A job that ends too early is begun again by the same command: it goes on where it was stopped.
#SBATCH --job-name=anchorscope
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=64
#SBATCH --time=12:00:00
#SBATCH --requeue
#SBATCH --output=anchorscope-%j.log

set -euo pipefail
study=${1:?give a study: sbatch slurm.sh study.yaml RUNS [what anchorscope run takes]}
runs=${2:?give the place of runs, which every node reaches}

# source /shared/venvs/anchorscope/bin/activate   # pip install 'anchorscope[ray]', and [vllm] for backend: vllm
export HF_HOME=${HF_HOME:-/shared/huggingface}    # models are loaded once from here, by every node
export HF_HUB_OFFLINE=${HF_HUB_OFFLINE:-1}        # fetch them before; replicas should not all ask the hub at once
export RAY_process_group_cleanup_enabled=1        # what vLLM starts ends with its replica
export RAY_AUTH_MODE=token                        # else every user of the cluster can run code in this job's name
RAY_AUTH_TOKEN=$(python -c 'import secrets; print(secrets.token_hex(32))')  # srun gives it to the other nodes
export RAY_AUTH_TOKEN
patience=600                                      # seconds until all nodes must be there

# 1. the head, on the node this script runs on
head=$SLURMD_NODENAME
address=$(hostname -I | awk '{print $1}')         # the first address that is not the loopback's
port=6379
export RAY_ADDRESS=$address:$port                 # what `--ray-address auto` finds
srun_ray=(srun --overlap --cpus-per-task="$SLURM_CPUS_PER_TASK" --gpus-per-node="$SLURM_GPUS_PER_NODE")
start=(ray start --disable-usage-stats --block --num-cpus="$SLURM_CPUS_PER_TASK" --num-gpus="$SLURM_GPUS_PER_NODE")
env -u RAY_ADDRESS "${srun_ray[@]}" --nodes=1 --ntasks=1 --nodelist="$head" \
    "${start[@]}" --head --node-ip-address="$address" --port="$port" &

# 2. the others, once it answers
deadline=$((SECONDS + patience))
until ray status --address="$RAY_ADDRESS" >/dev/null 2>&1; do
    ((SECONDS < deadline)) || { echo "Ray's head does not answer at $RAY_ADDRESS" >&2; exit 1; }
    sleep 2
done
if ((SLURM_JOB_NUM_NODES > 1)); then
    env -u RAY_ADDRESS "${srun_ray[@]}" --nodes=$((SLURM_JOB_NUM_NODES - 1)) --ntasks=$((SLURM_JOB_NUM_NODES - 1)) \
        --exclude="$head" "${start[@]}" --address="$address:$port" &
fi

# 3. wait until all of them are there
python - "$SLURM_JOB_NUM_NODES" "$patience" <<'PYTHON'
import sys, time
import ray

ray.init(address="auto", log_to_driver=False)
nodes, deadline = int(sys.argv[1]), time.monotonic() + float(sys.argv[2])
while (there := sum(node["Alive"] for node in ray.nodes())) < nodes:
    if time.monotonic() > deadline:
        sys.exit(f"only {there} of {nodes} nodes have joined")
    time.sleep(2)
PYTHON

# 4. the run. What it prints goes to the job's log; `anchorscope status RUNS/NAME` tells from anywhere how far it is
anchorscope run "$study" --runs "$runs" --ray-address auto "${@:3}"
ray stop
