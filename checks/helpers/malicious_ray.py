"""A malicious Ray cluster: it answers a client's handshake, and then sends an error that is a pickle.

    python malicious_ray.py PORT READY CALLS EXECUTED

It makes the file READY when it listens and CALLS when somebody calls. Unpickling the error makes the file EXECUTED.
"""

# ruff: noqa: N802  the names are those of the protocol
from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc  # type: ignore[import-untyped]
import ray
import ray.cloudpickle
from ray.core.generated import ray_client_pb2 as messages
from ray.core.generated import ray_client_pb2_grpc as services

PORT, READY, CALLS, EXECUTED = sys.argv[1:]


class Payload:
    """What is executed where its pickle is read."""

    def __reduce__(self) -> Any:
        return Path.touch, (Path(EXECUTED),)


PICKLE = ray.cloudpickle.dumps(Payload())


class Witness(grpc.ServerInterceptor):  # type: ignore[misc]
    """Notes that somebody calls, also where the call is one that only a real cluster could answer."""

    def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        Path(CALLS).touch()
        return continuation(handler_call_details)


class Driver(services.RayletDriverServicer):  # type: ignore[misc]
    """The calls of a client, each answered by the pickle where an answer can be an error."""

    def Init(self, request: Any, context: Any) -> Any:
        return messages.InitResponse(ok=True)

    def ClusterInfo(self, request: Any, context: Any) -> Any:
        kinds = messages.ClusterInfoType
        if request.type in (kinds.CLUSTER_RESOURCES, kinds.AVAILABLE_RESOURCES):
            table = messages.ClusterInfoResponse.ResourceTable(table={"CPU": 8.0})
            return messages.ClusterInfoResponse(type=request.type, resource_table=table)
        if request.type == kinds.RUNTIME_CONTEXT:
            runtime = messages.ClusterInfoResponse.RuntimeContext()
            return messages.ClusterInfoResponse(type=request.type, runtime_context=runtime)
        said = "true" if request.type == kinds.IS_INITIALIZED else "{}"
        return messages.ClusterInfoResponse(type=request.type, json=said)

    def ListNamedActors(self, request: Any, context: Any) -> Any:
        return messages.ClientListNamedActorsResponse()

    def Schedule(self, request: Any, context: Any) -> Any:
        return messages.ClientTaskTicket(valid=False, error=PICKLE)

    def PutObject(self, request: Any, context: Any) -> Any:
        return messages.PutResponse(valid=False, error=PICKLE)

    def GetObject(self, request: Any, context: Any) -> Iterator[Any]:
        yield messages.GetResponse(valid=False, error=PICKLE)

    def KVGet(self, request: Any, context: Any) -> Any:
        return messages.KVGetResponse()

    def KVPut(self, request: Any, context: Any) -> Any:
        return messages.KVPutResponse()

    def KVExists(self, request: Any, context: Any) -> Any:
        return messages.KVExistsResponse(exists=False)

    def PinRuntimeEnvURI(self, request: Any, context: Any) -> Any:
        return messages.ClientPinRuntimeEnvURIResponse()


class Data(services.RayletDataStreamerServicer):  # type: ignore[misc]
    """The stream over which a client puts objects and starts tasks."""

    def Datapath(self, requests: Iterator[Any], context: Any) -> Iterator[Any]:
        for request in requests:
            kind, answer = request.WhichOneof("type"), messages.DataResponse(req_id=request.req_id)
            if kind == "init":
                answer.init.CopyFrom(messages.InitResponse(ok=True))
            elif kind == "connection_info":
                version = ".".join(map(str, sys.version_info[:3]))
                about = {"python_version": version, "ray_version": ray.__version__, "ray_commit": ray.__commit__}
                answer.connection_info.CopyFrom(messages.ConnectionInfoResponse(num_clients=1, **about))
            elif kind == "put":
                answer.put.CopyFrom(messages.PutResponse(valid=False, error=PICKLE))
            elif kind == "get":
                answer.get.CopyFrom(messages.GetResponse(valid=False, error=PICKLE))
            elif kind == "task":
                answer.task_ticket.CopyFrom(messages.ClientTaskTicket(valid=False, error=PICKLE))
            elif kind == "release":
                answer.release.CopyFrom(messages.ReleaseResponse(ok=[]))
            elif kind == "connection_cleanup":
                answer.connection_cleanup.CopyFrom(messages.ConnectionCleanupResponse())
            yield answer


class Logs(services.RayletLogStreamerServicer):  # type: ignore[misc]
    """The log, in which nothing is said."""

    def Logstream(self, requests: Iterator[Any], context: Any) -> Iterator[Any]:
        for _ in requests:
            pass
        yield from ()


if __name__ == "__main__":
    server = grpc.server(futures.ThreadPoolExecutor(16), interceptors=[Witness()])
    services.add_RayletDriverServicer_to_server(Driver(), server)
    services.add_RayletDataStreamerServicer_to_server(Data(), server)
    services.add_RayletLogStreamerServicer_to_server(Logs(), server)
    server.add_insecure_port(f"127.0.0.1:{PORT}")
    server.start()
    Path(READY).touch()
    while True:
        time.sleep(3600)
