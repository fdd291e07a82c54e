"""The Ray cluster of a run: one that is started here, or one that the user named.

Whoever controls a Ray cluster runs code in every process that joins it. So no file names a cluster, neither a study nor
a run directory. Only an argument, the command line or the environment does.
"""

from __future__ import annotations

import logging
import os

from anchorscope.errors import StoreError, StudyError

ADDRESS = "ANCHORSCOPE_RAY_ADDRESS"


def cluster_address(given: str | None) -> str | None:
    """The address to join: `given`, else that of the environment. None: a cluster is started on this machine."""
    address = given or os.environ.get(ADDRESS) or None
    # Ray itself reads RAY_ADDRESS where the address is auto
    joined = (os.environ.get("RAY_ADDRESS") or address) if address == "auto" else address
    if joined is not None and "://" in joined:
        raise StudyError(
            f"the Ray address {joined} is refused: a Ray client unpickles what the server sends, so the server could "
            "run any code here",
            "Start the run on a node of the cluster, with --ray-address auto or --ray-address HOST:PORT.",
        )
    return address


def join_cluster(address: str | None, cpus: int) -> None:
    """Join the cluster at an address or, without one, start a cluster with at least so many cores on this machine."""
    import ray

    _quiet()
    local = address is None
    try:
        ray.init(
            address=address or "local",  # else Ray would join whatever cluster runs here
            num_cpus=max(cpus, os.cpu_count() or 1) if local else None,
            include_dashboard=False if local else None,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    except ConnectionError as error:
        raise StoreError(
            f"there is no Ray cluster at {address} ({error})",
            f"Start one with: ray start --head  (or leave out --ray-address, and unset {ADDRESS}).",
        ) from None


def _quiet() -> None:
    """Silence Ray's messages. It has its own log, and a run prints its own progress."""
    os.environ.setdefault("RAY_DATA_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # it warns of what Ray Data does with actors
    os.environ.setdefault("RAY_worker_niceness", "0")  # else workers wait for everything else on a busy machine
    for name in ("ray", "ray.data"):
        logging.getLogger(name).setLevel(logging.ERROR)
