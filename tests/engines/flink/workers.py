"""Python workers outside the submitter: python -m tests.engines.flink.workers PORT CACHE.

As Beam's own apache_beam.runners.worker.worker_pool_main, which listens on all interfaces: this one
is reachable over loopback only. A process is started for each worker that a job asks for. None is
started anew when it dies: the engine asks again. CACHE: MB of state that each may keep from bundle
to bundle, as with Beam's --max_cache_memory_usage_mb.
"""

from __future__ import annotations

import signal
import sys
from concurrent.futures import ThreadPoolExecutor

import grpc
from apache_beam.portability.api import beam_fn_api_pb2_grpc
from apache_beam.runners.worker.worker_pool_main import BeamFnExternalWorkerPoolServicer


def main(port: str, cache: str) -> None:
    """Serve until a signal."""
    server = grpc.server(ThreadPoolExecutor(4))
    pool = BeamFnExternalWorkerPoolServicer(use_process=True, state_cache_size=int(cache) << 20)
    beam_fn_api_pb2_grpc.add_BeamFnExternalWorkerPoolServicer_to_server(pool, server)
    if not server.add_insecure_port(f"127.0.0.1:{port}"):
        sys.exit(f"port {port} is taken")
    server.start()
    server.wait_for_termination()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    main(*sys.argv[1:])
