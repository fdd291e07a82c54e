"""Files that one applies to a cluster: as far as they can be tried without one."""

from __future__ import annotations

import subprocess
from pathlib import Path

import yaml

from anchorscope import Study

DEPLOY = Path(__file__).parents[1] / "docs" / "deploy"


def test_the_sbatch_script_is_a_script():
    subprocess.run(["bash", "-n", str(DEPLOY / "slurm.sh")], check=True)


def test_the_study_of_the_job_is_valid_and_fits_its_workers():
    config, job = yaml.safe_load_all((DEPLOY / "kuberay.yaml").read_text(encoding="utf-8"))
    study = Study.model_validate(yaml.safe_load(config["data"]["study.yaml"]))
    (workers,) = job["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    (container,) = workers["template"]["spec"]["containers"]
    limits, engine = container["resources"]["limits"], study.engine
    assert engine.kind == "ray"
    assert engine.gpus_per_replica is not None
    assert engine.gpus_per_replica * engine.replicas == int(limits["nvidia.com/gpu"]) * workers["replicas"]
    assert engine.cpus_per_replica <= int(limits["cpu"])
    assert study.models[0].device_map == "auto"  # one model on several GPUs


def test_all_pods_see_the_same_places():
    _, job = yaml.safe_load_all((DEPLOY / "kuberay.yaml").read_text(encoding="utf-8"))
    cluster = job["spec"]["rayClusterSpec"]
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        pod = group["template"]["spec"]
        volumes = {each["name"] for each in pod["volumes"]}
        mounts = {each["mountPath"]: each["name"] for each in pod["containers"][0]["volumeMounts"]}
        assert set(mounts.values()) == volumes
        assert {"/study", "/shared"} <= set(mounts)
