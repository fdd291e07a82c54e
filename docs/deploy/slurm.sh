#!/bin/bash
# One run of anchorscope on several nodes of a SLURM cluster:   sbatch slurm.sh study.yaml /shared/runs
#
# The study says    engine: {kind: ray, address: auto, replicas: 16, gpus_per_replica: 2, cpus_per_replica: 8}
# /shared/runs, the models (HF_HOME, or their folders) and this environment must be the same place on every node; or
# give s3://bucket/runs. A job that ends too early is begun again by the same command: it goes on where it was stopped.
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
study=${1:?give a study: sbatch slurm.sh study.yaml RUNS}
runs=${2:?give the place of runs, which every node reaches}

# source /shared/venvs/anchorscope/bin/activate   # pip install 'anchorscope[ray]', and [vllm] for backend: vllm
export HF_HOME=${HF_HOME:-/shared/huggingface}    # models are loaded once from here, by every node
export HF_HUB_OFFLINE=${HF_HUB_OFFLINE:-1}        # fetch them before; replicas should not all ask the hub at once

# 1. the head, on the node this script runs on
head=$(hostname)
address=$(hostname --ip-address | awk '{print $1}')
port=6379
srun --nodes=1 --ntasks=1 --nodelist="$head" --overlap \
    ray start --head --node-ip-address="$address" --port="$port" --disable-usage-stats --block &

# 2. the others, once it answers
until ray status --address="$address:$port" >/dev/null 2>&1; do sleep 2; done
if ((SLURM_JOB_NUM_NODES > 1)); then
    srun --nodes=$((SLURM_JOB_NUM_NODES - 1)) --ntasks=$((SLURM_JOB_NUM_NODES - 1)) --exclude="$head" --overlap \
        ray start --address="$address:$port" --disable-usage-stats --block &
fi

# 3. wait until all of them are there
python - "$address:$port" "$SLURM_JOB_NUM_NODES" <<'PYTHON'
import sys, time
import ray

ray.init(address=sys.argv[1], log_to_driver=False)
while sum(node["Alive"] for node in ray.nodes()) < int(sys.argv[2]):
    time.sleep(2)
PYTHON

# 4. the run. What it prints goes to the job's log; `anchorscope status RUNS/NAME` tells from anywhere how far it is
anchorscope run "$study" --runs "$runs"
ray stop
