"""What the embedded server runs with: the lines of headwatch.conf, which postgresql.conf includes."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

CONF_NAME = "headwatch.conf"
HBA = """\
# No TCP port is open, and the folder of the Unix socket is 0700: who can connect owns these files anyway.
local all all trust
"""

_SETTINGS: dict[str, str] = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "max_connections": "50",
    "shared_buffers": "128MB",
    "work_mem": "32MB",
    "maintenance_work_mem": "512MB",  # HNSW builds are 8 × slower with 16 MB
    "autovacuum_work_mem": "64MB",  # else each worker may take maintenance_work_mem
    "jit": "off",
    "random_page_cost": "1.1",
    # Nobody replicates from here.
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_logical_replication_workers": "0",
    "max_wal_size": "2GB",
    "checkpoint_timeout": "15min",
    "synchronous_commit": "on",
    # Index-only scans on postings need a fresh visibility map.
    "autovacuum_max_workers": "2",
    "autovacuum_vacuum_scale_factor": "0.05",
    "autovacuum_vacuum_insert_scale_factor": "0.05",
    "autovacuum_analyze_scale_factor": "0.05",
    "autovacuum_vacuum_cost_limit": "1000",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "lc_messages": "C",
    # One file a weekday, overwritten a week later; neither statements nor row values, which hold source text.
    "logging_collector": "on",
    "log_directory": "log",
    "log_filename": "postgres-%a.log",
    "log_rotation_age": "1d",
    "log_rotation_size": "0",
    "log_truncate_on_rotation": "on",
    "log_min_messages": "warning",
    "log_checkpoints": "off",
    "log_autovacuum_min_duration": "-1",
    "log_error_verbosity": "terse",
    "log_min_error_statement": "panic",
}
_SMALL_SHM_BYTES = 1 << 30


def conf(socket_dir: str, cluster: str, overrides: Mapping[str, str]) -> str:
    """Write headwatch.conf."""
    chosen = _SETTINGS | {"unix_socket_directories": f'"{socket_dir}"', "cluster_name": cluster}
    if _small_shm():
        chosen["dynamic_shared_memory_type"] = "sysv"
    lines = [f"{name} = {_quoted(value)}\n" for name, value in (chosen | dict(overrides)).items()]
    return (
        "# Written by headwatch at each start; put changes below the include in postgresql.conf.\n"
        + "".join(lines)
    )


def _quoted(value: str) -> str:
    return "'" + value.replace("'", "''").replace("\\", "\\\\") + "'"


def _small_shm() -> bool:
    """Tell whether a parallel index build could fill /dev/shm: containers often give it 64 MB."""
    if sys.platform != "linux":
        return False
    try:
        room = os.statvfs("/dev/shm")  # noqa: S108 – looked at, nothing is written
    except OSError:
        return True
    return room.f_blocks * room.f_frsize < _SMALL_SHM_BYTES
