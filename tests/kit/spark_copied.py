"""What jobs of `spark_cluster_driver.py` copy: a topic, its copy, and tables of its rows."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import deltalake
import polars
import pyarrow as pa
from pyiceberg.catalog import load_catalog
from spark_cluster import until

import ottla.columnar

ROWS = 60
TABLES = {"delta": "delta", "iceberg": "warehouse"}
"""The folder of each kind of table."""


class Copied:
    """A topic, its copy and what a reader of committed records sees of both."""

    def __init__(self, kafka: Any, folder: Path, **options: Any) -> None:
        self.servers, self.folder, self.gate = kafka.bootstrap_servers, folder, folder / "gate"
        self.gate.mkdir()
        self.source, self.sink = (f"{name}-{uuid.uuid4().hex[:8]}" for name in ("in", "out"))
        for name in (self.source, self.sink):
            kafka.create_topic(name, partitions=2, **options)
        rows = [f"{p}-{i}" for p in range(2) for i in range(ROWS)]
        partitions = [int(row[0]) for row in rows]
        table = pa.table({"value": rows, "partition": pa.array(partitions, pa.int32())})
        ottla.columnar.write(self.source, table, bootstrap_servers=self.servers)

    def arguments(self, **more: Any) -> dict[str, Any]:
        names = {"servers": self.servers, "source": self.source, "sink": self.sink, "folder": str(self.folder)}
        return names | more

    def gated(self, *waits: str, **more: str) -> dict[str, Any]:
        return self.arguments(gate=str(self.gate), waits=dict.fromkeys(waits, "go") | more)

    def begun(self, name: str) -> Any:
        return until((self.gate / f"begun-{name}").exists, lambda: sorted(file.name for file in self.gate.iterdir()))

    @property
    def attempts(self) -> list[str]:
        """The attempts of tasks, as `begun-<batch>-<task>-<attempt>`."""
        return sorted(file.name for file in self.gate.glob("begun-*"))

    def go(self) -> None:
        (self.gate / "go").touch()

    @property
    def tables_are_exact(self) -> bool:
        return self.table_is_exact("delta") and self.table_is_exact("iceberg")

    def table_is_exact(self, kind: str) -> bool:
        """Each row is in the table once, and no file of an attempt that failed or lost is left."""
        rows = sorted(f"{p}-{i}" for p in range(2) for i in range(ROWS))
        if kind == "iceberg":
            uri, lake = f"sqlite:///{self.folder}/catalog.db", f"file://{self.folder}/warehouse"
            iceberg = load_catalog("default", type="sql", uri=uri, warehouse=lake).load_table("lake.rows")
            found = iceberg.scan().to_arrow().column("value").to_pylist()
            known = {path.removeprefix("file://") for path in iceberg.inspect.files().to_pydict()["file_path"]}
        else:
            found = polars.read_delta(str(self.folder / "delta"))["value"].to_list()
            known = set(deltalake.DeltaTable(str(self.folder / "delta")).file_uris())
        assert sorted(found) == rows
        assert {str(file) for file in self.files(kind)} == known
        return True

    def files(self, kind: str, name: str = "*") -> list[Path]:
        """The Parquet files of a table, by the beginning of their names: `<task>-<attempt>`."""
        return sorted((self.folder / TABLES[kind]).rglob(f"{name}.parquet"))

    @property
    def is_exact(self) -> bool:
        """Partitions know that a transaction is committed a moment after its coordinator."""
        until(lambda: len(values_of(self.servers, self.sink)) >= 2 * ROWS, "rows are missing")
        assert sorted(values_of(self.servers, self.sink)) == sorted(f"{p}-{i}" for p in range(2) for i in range(ROWS))
        return True


def values_of(servers: str, topic: str) -> list[str]:
    table = ottla.columnar.read(topic, bootstrap_servers=servers, columns=("value",)).read_all()
    return [value.decode() for value in table.column("value").to_pylist()]
