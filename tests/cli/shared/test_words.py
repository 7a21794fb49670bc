"""Words of Kafka's own tools: taken where they mean the same, else ours is suggested."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from click.testing import CliRunner
from command_output import rows

from ottla.cli import main
from ottla.testing import Kafka


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["produce", "orders", "--value", "x"], "No such option '--value': FILE is an argument"),
        (["consume", "--topic", "orders"], "No such option '--topic': TOPIC is an argument"),
        (["consume", "orders", "--form-beginning"], "Did you mean '--from-beginning'?"),
        (["consume", "orders", "--offset", "3"], "Did you mean '--from'?"),
        (["consume", "orders", "--consumer-property", "a=b"], "Did you mean '--set'?"),
        (["groups", "reset", "billing", "--to-earliest"], "Did you mean '--to earliest'?"),
        (["groups", "reset", "--group", "billing"], "GROUP is an argument"),
        (["groups", "reset", "billing", "--to", "earliest", "--execute"], "Did you mean '--yes'?"),
        (["topics", "list", "--xyzzy"], "No such option '--xyzzy'."),
        (["topics", "rm", "orders"], "No such command 'rm'. Did you mean 'delete'?"),
        (["topics", "ls"], "Did you mean 'list'?"),
        (["topics", "shwo", "orders"], "Did you mean 'show'?"),
        (["quotas", "rm"], "Did you mean 'remove'?"),
        (["acls", "describe"], "Did you mean 'list'?"),
        (["topic", "list"], "Did you mean 'topics'?"),
        (["tail", "orders"], "Did you mean 'consume'?"),
        (["xyzzy"], "No such command 'xyzzy'."),
    ],
)
def test_a_wrong_word_suggests_the_right_one(arguments: list[str], hint: str) -> None:
    ended = CliRunner().invoke(main, arguments)
    assert ended.exit_code == 2
    assert hint in ended.stderr.replace("(", "").replace(")", ""), ended.stderr


def test_words_that_mean_the_same_are_taken(kafka: Kafka, make_topic: Callable[..., str]) -> None:
    topic = make_topic("words")
    kafka.produce(topic, [b"1", b"2", b"3"])

    def ottla(*arguments: str) -> list[list[str]]:
        return rows(CliRunner().invoke(main, [*arguments, "--bootstrap-server", kafka.bootstrap_servers]))

    assert ottla("topics", "describe", topic) == ottla("topics", "show", topic)
    assert len(ottla("consume", topic, "--from-beginning", "--max-messages", "2")) == 2
    assert ottla("consume", topic, "--from-beginning") == ottla("consume", topic, "--from", "earliest")


def test_a_beginning_and_another_beginning_contradict_each_other() -> None:
    ended = CliRunner().invoke(main, ["consume", "t", "--from-beginning", "--from", "-2h", "-b", "127.0.0.1:1"])
    assert ended.exit_code == 2
    assert "found --from-beginning and --from -2h, wanted one of them" in ended.stderr


@pytest.mark.parametrize("option", ["-b", "--bootstrap-servers", "--bootstrap-server"])
def test_a_service_is_run_at_an_address(option: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTTLA_BOOTSTRAP_SERVERS", "other:9092")  # the command sets it for its process
    ended = CliRunner().invoke(main, ["run", option, "127.0.0.1:1", "no_such_module:app"])
    assert "there is no module 'no_such_module'" in ended.stderr


@pytest.mark.parametrize("path", ["shop/service.py", "./shop/service.py", "shop/service"])
def test_the_path_of_a_file_in_place_of_a_module_is_named(path: str) -> None:
    ended = CliRunner().invoke(main, ["run", f"{path}:app"])
    assert f"{path}:app: found the path of a file, wanted the name of its module: shop.service:app" in ended.stderr


def test_a_pipeline_is_described_by_its_own_command() -> None:
    told = CliRunner().invoke(main, ["pipeline", "describe", "--help"]).stdout
    assert "Show the definition of a pipeline" in told
    assert "  describe " not in CliRunner().invoke(main, ["topics", "--help"]).stdout
