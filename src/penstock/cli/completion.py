"""`penstock completion bash|zsh|fish`: the script that makes a shell complete commands and options."""

from __future__ import annotations

import click

from penstock.cli.style import StyledCommand

SHELLS = ("bash", "zsh", "fish")


@click.command(cls=StyledCommand)
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def command(context: click.Context, shell: str) -> None:
    """Print the completion script for a shell.

    \b
    eval "$(penstock completion bash)"       in ~/.bashrc
    eval "$(penstock completion zsh)"        in ~/.zshrc, after compinit
    penstock completion fish | source        in ~/.config/fish/config.fish
    """
    from click.shell_completion import get_completion_class

    completion_class = get_completion_class(shell)
    assert completion_class is not None
    root = context.find_root().command
    # Bash's own class queries the installed bash for its version first, which costs a process and fails without one.
    completion = completion_class(root, {}, "penstock", "_PENSTOCK_COMPLETE")
    click.echo(completion.source_template % completion.source_vars())
