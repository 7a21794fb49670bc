"""`ottla completion`: what a shell runs so that TAB completes commands, options, topics and groups."""

from __future__ import annotations

import click

_SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(_SHELLS))
def completion(shell: str) -> None:
    """Print the completion script of SHELL, for its start-up file.

    It asks the cluster of the command line for topics and groups, at most once a minute, and never if that
    would prompt for a password.

    \b
    Examples:
      ottla completion bash >> ~/.bashrc
      ottla completion zsh > ~/.zfunc/_ottla
      ottla completion fish > ~/.config/fish/completions/ottla.fish
    """
    from click.shell_completion import get_completion_class

    root = click.get_current_context().find_root()
    found = get_completion_class(shell)
    if found is None:
        raise click.UsageError(f"no completion for {shell}")
    click.echo(found(root.command, {}, "ottla", "_OTTLA_COMPLETE").source())
