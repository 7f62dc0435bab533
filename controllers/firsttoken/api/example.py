"""A row of docs/validation.md: one rule, an object that breaks it, where, and what is said."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Example:
    """`patch` (YAML) is merged into the smallest valid object of `kind` and makes the API server refuse it at `path`.

    `message` is only given where the structural schema speaks for itself; a CEL rule's own message is taken otherwise.
    With `change`, the smallest object exists already and the patch changes it.
    """

    id: str
    words: str
    path: str
    patch: str
    message: str = ""
    kind: str = "InferenceService"
    shown: str = ""
    change: bool = False


BASES = {
    "InferenceService": """\
apiVersion: firsttoken.dev/v1alpha1
kind: InferenceService
metadata:
  name: kb-assistant
spec:
  model:
    uri: hf://Qwen/Qwen2.5-7B-Instruct
  accelerator:
    type: nvidia-a100-40gb
""",
    "InferenceRevision": """\
apiVersion: firsttoken.dev/v1alpha1
kind: InferenceRevision
metadata:
  name: kb-assistant-0a1b2c3d
spec:
  serviceName: kb-assistant
  hash: 0a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f9
  reason:
    type: SpecChange
    message: first revision
  inputs: {}
  plan: {}
  objects: []
""",
    "AcceleratorProfile": """\
apiVersion: firsttoken.dev/v1alpha1
kind: AcceleratorProfile
metadata:
  name: our-own-gpu
spec:
  vendor: NVIDIA
  product: Our own GPU
  resourceName: nvidia.com/gpu
  memory: 40Gi
""",
    "PerformanceReport": """\
apiVersion: firsttoken.dev/v1alpha1
kind: PerformanceReport
metadata:
  name: kb-assistant-2026-01
spec:
  serviceName: kb-assistant
  fromTime: "2026-01-01T00:00:00Z"
  toTime: "2026-02-01T00:00:00Z"
""",
}
"""The smallest valid object of each kind."""


def field(path: str, value: str) -> str:
    """YAML that sets one field: `field("spec.tuning.mode", "Auto")`."""
    lines = [f"{'  ' * depth}{name}:" for depth, name in enumerate(path.split("."))]
    return "\n".join(lines) + f" {value}\n"
