"""The command that shows what is known of a GPU type; see application.py for how commands are written."""

from firsttoken_operator.cli.errors import BadInput, end
from firsttoken_operator.cli.options import (
    Mig,
    MigStrategy,
    OutputRender,
    ProfileName,
    Profiles,
    RenderOutput,
    SliceMemory,
    Strategy,
)


def profile(
    *,
    name: ProfileName = None,
    profiles: Profiles = [],  # noqa: B006 - typer copies it
    mig: Mig = None,
    mig_strategy: MigStrategy = Strategy.MIXED,
    memory: SliceMemory = None,
    output: OutputRender = RenderOutput.YAML,
) -> None:
    """
    Print what the planner knows of a GPU type, as an AcceleratorProfile to apply.

    With --mig it is that of a slice of the GPU, with its share of the figures, its resource and its node labels; it
    is called NAME-mig-SLICE. --profiles adds to the built-in catalogue.

    Exit codes: 0 printed, 1 no such profile, or the GPU has no such slice, 2 bad input.

    \b
    Examples:
      {program} profile
      {program} profile nvidia-h100-80gb
      {program} profile nvidia-a100-40gb --mig 3g.20gb | kubectl apply -f -
      {program} profile nvidia-a100-40gb --mig 1g.5gb --memory 4864Mi --mig-strategy single
    """
    if mig is None and (memory is not None or mig_strategy is not Strategy.MIXED):
        raise BadInput("--memory and --mig-strategy are of a slice: name it with --mig, such as --mig 1g.5gb")
    if name is None and mig is not None:
        raise BadInput("--mig needs the NAME of the whole GPU's profile")
    from firsttoken_operator.cli import offline_profile  # noqa: PLC0415 - --help must not wait for heavy imports

    as_json = output is RenderOutput.JSON
    if name is None:
        end(offline_profile.names(profiles))
    else:
        piece = None if mig is None else offline_profile.Slice(mig, mig_strategy.value, memory)
        end(offline_profile.show(profiles, name, piece, as_json=as_json))
