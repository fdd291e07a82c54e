"""Files that one applies to a cluster or a server: as far as they can be tried without one."""

from __future__ import annotations

import configparser
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from anchorscope import Study
from anchorscope.cli import app

DEPLOY = Path(__file__).parents[1] / "docs" / "deploy"


def documents(name: str) -> list[Any]:
    return list(yaml.safe_load_all((DEPLOY / name).read_text(encoding="utf-8")))


def options_of(words: list[str]) -> dict[str, Any]:
    """The options of a command of ours, as our own command line reads them. The command is not carried out."""
    program, name, *arguments = words
    assert Path(program).name == "anchorscope"
    command: Any = get_command(app)
    context = command.commands[name].make_context(name, arguments)
    assert context.args == []  # no option that is not ours
    return dict(context.params)


# --- Ray


def test_the_sbatch_script_is_a_script():
    subprocess.run(["bash", "-n", str(DEPLOY / "slurm.sh")], check=True)


def test_the_study_of_the_job_is_valid_and_fits_its_workers():
    config, job = documents("kuberay.yaml")
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
    _, job = documents("kuberay.yaml")
    cluster = job["spec"]["rayClusterSpec"]
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        pod = group["template"]["spec"]
        volumes = {each["name"] for each in pod["volumes"]}
        mounts = {each["mountPath"]: each["name"] for each in pod["containers"][0]["volumeMounts"]}
        assert set(mounts.values()) == volumes
        assert {"/study", "/shared"} <= set(mounts)


def test_the_job_runs_a_command_of_ours():
    _, job = documents("kuberay.yaml")
    assert options_of(shlex.split(job["spec"]["entrypoint"]))["study"] == "/study/study.yaml"


def test_a_ray_cluster_asks_for_a_token():
    _, job = documents("kuberay.yaml")
    cluster = job["spec"]["rayClusterSpec"]
    assert cluster["authOptions"] == {"mode": "token"}
    assert tuple(map(int, cluster["rayVersion"].split("."))) >= (2, 52)  # the first that knows tokens
    script = (DEPLOY / "slurm.sh").read_text(encoding="utf-8")
    first = script.index("ray start")
    assert script.index("export RAY_AUTH_MODE=token") < script.index("export RAY_AUTH_TOKEN") < first


# --- a server


def server() -> tuple[Any, Any]:
    """The pod of the server, and its container."""
    (deployment,) = documents("vllm-verdicts.yaml")
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    return pod, container


def test_the_probe_reaches_the_server():
    _, container = server()
    options = options_of(container["command"])
    probe = container["readinessProbe"]["httpGet"]
    assert options["host"] == "0.0.0.0"  # not the pod's own loopback
    assert options["port"] == probe["port"] == container["ports"][0]["containerPort"]
    assert probe["path"] == "/anchorscope/status"


def test_the_server_may_do_no_more_than_it_must():
    pod, container = server()
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] > 0
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_what_the_server_writes_has_a_volume():
    pod, container = server()
    volumes = {each["name"]: each for each in pod["volumes"]}
    mounts = {each["mountPath"]: each for each in container["volumeMounts"]}
    assert {each["name"] for each in mounts.values()} == set(volumes)
    env = {each["name"]: each.get("value") for each in container["env"]}
    written = {"/tmp", env["HOME"], env["HF_HOME"]}
    for place in written:
        mount = next(mounts[str(folder)] for folder in (Path(place), *Path(place).parents) if str(folder) in mounts)
        assert "emptyDir" in volumes[mount["name"]]
        assert not mount.get("readOnly")
    detector = options_of(container["command"])["detector"]
    assert all(str(path.parent) in mounts for path in detector)


def service() -> configparser.SectionProxy:
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(DEPLOY / "anchorscope.service", encoding="utf-8")
    return unit["Service"]


def test_the_service_writes_only_to_folders_that_systemd_makes():
    unit = service()
    options = options_of(shlex.split(unit["ExecStart"]))
    made = {
        place: f"/{folder}/{unit[name]}"
        for place, folder, name in (
            ("run", "run", "RuntimeDirectory"),
            ("log", "var/log", "LogsDirectory"),
            ("cache", "var/cache", "CacheDirectory"),
        )
    }
    env = dict(word.split("=", 1) for word in unit["Environment"].split())
    assert str(options["audit"].parent) == made["log"]
    assert env["XDG_RUNTIME_DIR"] == made["run"]
    assert env["HOME"] == made["cache"]
    assert env["HF_HOME"].startswith(made["cache"])
    assert unit["ProtectSystem"] == "strict"  # all else is read only


def test_the_service_gives_up_what_it_does_not_need():
    unit = service()
    yes = ("NoNewPrivileges", "ProtectHome", "PrivateTmp", "ProtectKernelTunables", "RestrictSUIDSGID")
    assert {name: unit[name] for name in yes} == dict.fromkeys(yes, "yes")
    assert unit["CapabilityBoundingSet"] == ""
    assert unit["UMask"] == "0077"  # the audit log is for the service alone
    # each of these closes the GPU's devices
    assert not {"PrivateDevices", "ProtectClock", "DeviceAllow", "DevicePolicy"} & set(unit)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_knows_every_setting(tmp_path: Path):
    unit = (DEPLOY / "anchorscope.service").read_text(encoding="utf-8")
    program = shlex.split(service()["ExecStart"])[0]
    (tmp_path / "anchorscope.service").write_text(unit.replace(program, "/bin/true"), encoding="utf-8")
    command = ["systemd-analyze", "verify", str(tmp_path / "anchorscope.service")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
