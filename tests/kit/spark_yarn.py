"""YARN in processes of its own: a resource manager and a node manager, for programs that `spark-submit` gives them."""

from __future__ import annotations

import contextlib
import http.client
import json
import subprocess
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

from maven_jars import SPARK_JARS, maven_jars
from spark_cluster import free_port, until
from spark_processes import SHORT_LIVED

_LOGGING: Final = """
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %p %c{1}: %m%n%ex
"""
_SERVER: Final = "org.apache.hadoop.yarn.server"


class YarnCluster:
    """`conf` is the folder for HADOOP_CONF_DIR; containers run in `local` and print to files in `logs`.

    Raises `Unavailable` without Maven.
    """

    def __init__(self, folder: Path) -> None:
        from ottla.spark.jvm.java import find_java, java_home

        self.conf, self.local, self.logs = folder / "conf", folder / "local", folder / "logs"
        for each in (self.conf, self.local, self.logs):
            each.mkdir(parents=True)
        jars = maven_jars("yarn.pom.xml", folder / "jars")
        assert jars
        self._classpath = f"{self.conf}:{folder / 'jars'}/*:{SPARK_JARS}/*"
        self._java = java_home(find_java()) / "bin" / "java"
        self._web = free_port()
        self._configure(folder)
        self._started: list[subprocess.Popen[bytes]] = []
        for name in ("resourcemanager.ResourceManager", "nodemanager.NodeManager"):
            self._start(name, folder / f"{name}.log")
        until(self._has_node, lambda: [log.read_text()[-4_000:] for log in folder.glob("*.log")])

    def close(self) -> None:
        """Node manager first: it ends its containers."""
        for process in reversed(self._started):
            process.terminate()
            process.wait(60)

    def _configure(self, folder: Path) -> None:
        core = {"fs.defaultFS": "file:///", "hadoop.tmp.dir": folder / "tmp"}
        yarn = {
            "yarn.resourcemanager.scheduler.class": f"{_SERVER}.resourcemanager.scheduler.fifo.FifoScheduler",
            "yarn.resourcemanager.webapp.address": f"127.0.0.1:{self._web}",
            "yarn.resourcemanager.admin.address": "127.0.0.1:0",
            "yarn.nodemanager.hostname": "127.0.0.1",
            "yarn.nodemanager.local-dirs": self.local,
            "yarn.nodemanager.log-dirs": self.logs,
            "yarn.nodemanager.resource.memory-mb": 4096,
            "yarn.nodemanager.resource.cpu-vcores": 4,
            "yarn.nodemanager.vmem-check-enabled": "false",
            "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": 100,
            "yarn.scheduler.minimum-allocation-mb": 128,
        }
        for name in ("", ".scheduler", ".resource-tracker"):
            yarn[f"yarn.resourcemanager{name}.address"] = f"127.0.0.1:{free_port()}"
        for name in ("", ".localizer", ".webapp"):
            yarn[f"yarn.nodemanager{name}.address"] = "127.0.0.1:0"
        (self.conf / "log4j2.properties").write_text(_LOGGING)
        (self.conf / "core-site.xml").write_text(_site(core))
        (self.conf / "yarn-site.xml").write_text(_site(yarn))
        # Spark's jars are on each machine, and need not be sent.
        settings = {"spark.yarn.jars": f"local:{SPARK_JARS}/*", "spark.yarn.stagingDir": (folder / "staging").as_uri()}
        settings |= {"spark.driver.memory": "600m", "spark.executor.memory": "512m", "spark.executor.instances": "2"}
        lines = [f"{name} {value}" for name, value in settings.items()]
        (self.conf / "spark-defaults.conf").write_text("\n".join(lines))

    def _start(self, name: str, log: Path) -> None:
        options = [*SHORT_LIVED.split(), "-Xmx256m", "--add-opens=java.base/java.lang=ALL-UNNAMED"]
        with log.open("w") as output:
            self._started.append(
                subprocess.Popen(
                    [self._java, *options, "-cp", self._classpath, f"{_SERVER}.{name}"],
                    stdout=output,
                    stderr=output,
                    stdin=subprocess.DEVNULL,
                )
            )

    def _has_node(self) -> bool:
        with contextlib.suppress(OSError, http.client.HTTPException, json.JSONDecodeError):
            asked = http.client.HTTPConnection("127.0.0.1", self._web, timeout=5)
            with contextlib.closing(asked):
                asked.request("GET", "/ws/v1/cluster/nodes", headers={"Accept": "application/json"})
                nodes = json.load(asked.getresponse())["nodes"]
                return any(node["state"] == "RUNNING" for node in (nodes or {}).get("node", ()))
        return False


def _site(settings: dict[str, object]) -> str:
    lines = [
        f"<property><name>{name}</name><value>{escape(str(value))}</value></property>"
        for name, value in settings.items()
    ]
    return "\n".join(["<configuration>", *lines, "</configuration>"])
