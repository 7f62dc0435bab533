"""The commands of `firsttoken`: what they are called, what they take, and the texts of --help.

A docstring here is what users read; `{program}` in it becomes the name they typed. Lines below a backspace mark
(`\\b`) are kept as they are.
"""

# What a command needs is imported by the command: it takes most of a second, and shells ask for completions often.

import inspect
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version

import typer

from firsttoken.api.base import API_VERSION
from firsttoken_operator.cli.console import echo
from firsttoken_operator.cli.errors import BadInput, Ended, ExitCode, end
from firsttoken_operator.cli.options import (
    AllNamespaces,
    Calibration,
    Context,
    Debug,
    Files,
    Kubeconfig,
    ModelConfig,
    Name,
    Namespace,
    NamespaceOfNone,
    OutputPlan,
    OutputRender,
    OutputText,
    PlanOutput,
    Profiles,
    Recursive,
    RenderOutput,
    Serving,
    Simulate,
    TextOutput,
    Version,
    Watch,
)
from firsttoken_operator.cli.profile_command import profile
from firsttoken_operator.cli.simulation_commands import accuracy, rehearse, simulate

ROOT_HELP = """
Serve language models so that users wait little for the first token.

validate, plan, render, profile, simulate, rehearse and accuracy need no cluster; status asks one.

\b
Exit codes of every command:
  0    done
  1    the answer is no: infeasible, not ready, not found
  2    bad input: a file, a flag or the kubeconfig has to be corrected
  3    the cluster can't be asked
  70   a defect of this program; --debug shows where
  130  interrupted
  141  nobody reads the output any more, as with `| head`
"""


def application(program: str) -> typer.Typer:
    """The application under the name that the caller typed."""
    # kubectl completes its plugins by a protocol of its own, so the option would promise what it can't do there.
    app = typer.Typer(
        help=ROOT_HELP,
        no_args_is_help=False,
        add_completion=" " not in program,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(invoke_without_command=True, help=ROOT_HELP)(_root)
    for command in (validate, plan, render, profile, simulate, rehearse, accuracy, status, version):
        _add(app, command, program)
    return app


def _add(app: typer.Typer, command: Callable[..., None], program: str) -> None:
    text = inspect.getdoc(command) or ""
    app.command(help=text.replace("{program}", program))(command)


def _root(
    context: typer.Context,
    debug: Debug = False,  # noqa: ARG001 - main() finds it in the arguments, which are there before any command
    show_version: Version = False,
) -> None:
    if show_version:
        version()
        raise Ended(ExitCode.DONE)
    if context.invoked_subcommand is None:
        echo(context.get_help())


def validate(
    *,
    filename: Files,
    recursive: Recursive = False,
    output: OutputText = TextOutput.TEXT,
) -> None:
    """
    Check manifests as the API server would, without a cluster.

    One line for each fault, `file:line: kind/name: path: message`, and one for each object without. Objects of
    other kinds are skipped.

    Exit codes: 0 no fault, 2 a fault, or a file that can't be read.

    \b
    Examples:
      {program} validate -f service.yaml
      {program} validate -f manifests/ -R
      kustomize build . | {program} validate -f -
      {program} validate -f service.yaml -o json
    """
    from firsttoken_operator.cli import offline

    end(offline.validate(filename, recursive=recursive, as_json=output is TextOutput.JSON))


def plan(
    *,
    filename: Files,
    recursive: Recursive = False,
    profiles: Profiles = [],  # noqa: B006 - typer copies it
    model_config: ModelConfig = None,
    calibration: Calibration = [],  # noqa: B006 - typer copies it
    simulate: Simulate = False,
    output: OutputPlan = PlanOutput.TABLE,
) -> None:
    """
    Show what would run for each InferenceService, and why.

    GPU types come from the built-in catalogue, from AcceleratorProfiles beside the services in the files, and from
    --profiles; the later one of a name counts. With -o json or yaml, one service gives one object and several give a
    list.

    Models come from the built-in catalogue or from spec.model.architecture. For others the config.json beside their
    weights is read: --model-config names it, else the hub is asked for hf:// models (HF_ENDPOINT, HF_TOKEN;
    HF_HUB_OFFLINE=1 forbids it).

    With --simulate the plan, the other shapes and the split that it proposes run in virtual time under the same
    requests, at the rate of the prediction; in JSON that is the key `simulated`. It needs the extra `simulation`.

    Exit codes: 0 feasible, 1 infeasible (with the constraint that binds and the nearest feasible request), 2 bad
    input.

    \b
    Examples:
      {program} plan -f service.yaml
      {program} plan -f service.yaml -o json
      {program} plan -f service.yaml --profiles our-gpus.yaml
      {program} plan -f service.yaml --model-config weights/config.json
      {program} plan -f service.yaml --simulate
    """
    from firsttoken_operator.cli import offline

    if simulate:
        from firsttoken_operator.cli.simulator import installed

        installed()
    end(
        offline.plan(
            filename,
            profiles,
            model_config,
            recursive=recursive,
            output=output.value,
            simulate=simulate,
            calibration_paths=calibration,
        )
    )


def render(
    *,
    filename: Files,
    recursive: Recursive = False,
    profiles: Profiles = [],  # noqa: B006 - typer copies it
    model_config: ModelConfig = None,
    namespace: NamespaceOfNone = "default",
    serving: Serving = False,
    output: OutputRender = RenderOutput.YAML,
) -> None:
    """
    Print every object that the operator would create.

    In the order of creation; equal input gives equal bytes. Owner references are left out, since only the API server
    knows the owner. Without --serving the gateway has no backend yet, as while pods start. With -o json the objects
    are one List.

    Exit codes: 0 rendered, 1 infeasible, 2 bad input.

    \b
    Examples:
      {program} render -f service.yaml
      {program} render -f service.yaml --serving | less
    """
    from firsttoken_operator.cli import offline

    end(
        offline.render(
            filename,
            profiles,
            namespace,
            model_config,
            recursive=recursive,
            serving=serving,
            as_json=output is RenderOutput.JSON,
        )
    )


def status(
    *,
    name: Name = None,
    namespace: Namespace = None,
    all_namespaces: AllNamespaces = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    output: OutputText = TextOutput.TEXT,
    watch: Watch = False,
) -> None:
    """
    Show what runs and why.

    Exit codes: 0 ready (in the table: all of them), 1 not ready, no such service or no such namespace, 2 bad input,
    3 the cluster can't be asked: not reachable, no permission, or without Firsttoken's CRDs.

    \b
    Examples:
      {program} status
      {program} status -A
      {program} status kb-assistant -n serving
      {program} status kb-assistant --watch
      {program} status kb-assistant -o json
    """
    if name is not None and all_namespaces:
        raise BadInput("NAME and -A exclude each other: name the namespace with -n")
    if watch and name is None:
        raise BadInput("--watch needs the NAME of a service")
    from firsttoken_operator.cli import online

    access = online.access(kubeconfig, context)
    as_json = output is TextOutput.JSON
    if name is None:
        end(online.status_of_all(access, namespace, all_namespaces=all_namespaces, as_json=as_json))
    else:
        end(online.status_of(access, namespace, name, as_json=as_json, watch=watch))


def version() -> None:
    """
    Print the version of this program and of the API it speaks.

    Exit codes: 0.

    \b
    Examples:
      {program} version
    """
    try:
        number = installed_version("firsttoken")
    except PackageNotFoundError:  # run from a source tree that was not installed
        number = "unknown"
    echo(f"firsttoken {number} (API {API_VERSION})")
