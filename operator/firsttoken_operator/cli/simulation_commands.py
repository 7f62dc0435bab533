"""The commands that simulate; see application.py for how they are written.

What they need is imported when they run: it takes a second, and is an extra that may not be installed.
"""

from firsttoken_operator.cli.errors import end
from firsttoken_operator.cli.options import (
    Compare,
    Duration,
    Files,
    MeasuredData,
    ModelConfig,
    OutputSimulation,
    OutputTable,
    OutputText,
    Profiles,
    Rate,
    Seed,
    SimulationOutput,
    TableOutput,
    TextOutput,
    Trace,
    WorkloadOption,
    WorldDuration,
    WorldFile,
    WorldSeed,
)


def simulate(
    *,
    filename: Files,
    compare: Compare = None,
    trace: Trace = None,
    workload: WorkloadOption = None,
    duration: Duration = None,
    rate: Rate = None,
    seed: Seed = 0,
    profiles: Profiles = [],  # noqa: B006 - typer copies it
    model_config: ModelConfig = None,
    output: OutputSimulation = SimulationOutput.TABLE,
) -> None:
    """
    Show what users of one service would see, without a GPU: TTFT by prompt length, and where it goes.

    Plans the service, then runs the plan's replicas in virtual time, under requests drawn from spec.workload or from a
    trace. Without --rate and spec.workload.requestsPerSecond, 70 % of what the plan's replicas carry. With --compare,
    a second service gets the same requests. -o html is a page with charts that needs no other file.

    A workload file says what spec.workload and the plan don't: bursts and daily swings, many shared prefixes,
    priorities, another router, engine options, a canary with a share of the requests (examples/workloads). --trace
    azure_conversation_2023.csv, azure_code_2023.csv and mooncake_conversation.jsonl are shipped.

    The first run of a version compiles the simulator, which takes about half a minute.

    Exit codes: 0 simulated, 1 infeasible, 2 bad input.

    \b
    Examples:
      {program} simulate -f service.yaml
      {program} simulate -f service.yaml --trace requests.csv --rate 5
      {program} simulate -f service.yaml --workload examples/workloads/bursts.yaml
      {program} simulate -f service.yaml --compare other.yaml --duration 30m
      {program} simulate -f service.yaml -o html > report.html
    """
    from firsttoken_operator.cli.simulator import installed  # noqa: PLC0415

    installed()
    from firsttoken_operator.cli.simulate import Question  # noqa: PLC0415
    from firsttoken_operator.cli.simulate import simulate as run  # noqa: PLC0415

    question = Question(filename, compare, trace, workload, duration, rate, seed, profiles, model_config)
    end(run(question, output=output.value))


def rehearse(
    *,
    filename: Files,
    world: WorldFile = None,
    duration: WorldDuration = None,
    seed: WorldSeed = None,
    profiles: Profiles = [],  # noqa: B006 - typer copies it
    model_config: ModelConfig = None,
    output: OutputTable = TableOutput.TABLE,
) -> None:
    """
    Show what the operator would do with a service over hours, and what users would see, in seconds.

    The operator's own decisions, on a cluster in memory whose engines are simulated, in virtual time: from the first
    apply, with pods that start, Envoys that follow, and requests of spec.workload. A world file says what happens
    meanwhile: traffic that changes, pods or nodes that are lost, slow nodes, edits, bad versions, a killed operator.

    Exit codes: 0 Ready at the end and no request lost but with pods that the world took, 1 not so, or infeasible, 2 bad
    input.

    \b
    Examples:
      {program} rehearse -f service.yaml
      {program} rehearse -f service.yaml --world pod-loss.yaml
      {program} rehearse -f service.yaml --world edit.yaml --duration 6h -o json
    """
    from firsttoken_operator.cli.simulator import installed  # noqa: PLC0415

    installed()
    from firsttoken_operator.cli.rehearse import Question  # noqa: PLC0415
    from firsttoken_operator.cli.rehearse import rehearse as run  # noqa: PLC0415

    end(run(Question(filename, world, duration, seed, profiles, model_config), as_json=output is TableOutput.JSON))


def accuracy(*, data: MeasuredData, output: OutputText = TextOutput.TEXT) -> None:
    """
    Predict measured runs by simulation, and show how far off the predictions are.

    Each row is a run of vLLM under a fixed number of clients: its mean TTFT and TPOT by model, GPU, tensor
    parallelism, lengths and clients, in the form of AIConfigurator's table e2e_vllm. Errors are |predicted / measured -
    1|; in JSON fractions, ttftMape and tpotMape the means over all predicted rows. Rows that can't be predicted are
    listed and counted.

    Exit codes: 0 compared, 1 no row could be predicted, 2 bad input.

    \b
    Examples:
      {program} accuracy --data e2e_vllm.csv
      {program} accuracy --data e2e_vllm.csv -o json
    """
    from firsttoken_operator.cli.simulator import installed  # noqa: PLC0415

    installed()
    from firsttoken_operator.cli.accuracy import accuracy as run  # noqa: PLC0415

    end(run(data, as_json=output is TextOutput.JSON))
