"""Models and GPUs of measured runs that are in no catalogue, and how the others are called there.

Shapes are those of config.json on the hub; data sheets of the vendor.
"""

from dataclasses import replace

from firsttoken.api.records import AcceleratorProfileSpec
from firsttoken.api.service_inputs import ModelSpec
from firsttoken.planning.accelerators import catalogue
from firsttoken.planning.models import WEIGHT_BYTES, model_facts
from firsttoken.planning.types import ModelFacts

# Names of GPUs in AIConfigurator's tables -> profiles of the catalogue.
SYSTEMS = {
    "a100_sxm": "nvidia-a100-80gb",
    "h100_sxm": "nvidia-h100-80gb",
    "h200_sxm": "nvidia-h200",
    "b200_sxm": "nvidia-b200",
    "gb200_sxm": "nvidia-gb200",
    "l40s": "nvidia-l40s",
    "rtx_pro_6000_server": "nvidia-rtx-pro-6000",
}
# Dense FP8 4.5 PFLOP/s, BF16 2.25, 8 TB/s, NVLink 5.
B300 = AcceleratorProfileSpec.model_validate(
    {
        "vendor": "NVIDIA", "product": "NVIDIA B300 SXM", "computeCapability": "10.3",
        "resourceName": "nvidia.com/gpu", "memory": "270Gi", "memoryBandwidthGbPerSecond": 8000, "fp16Tflops": 2250,
        "fp8Tflops": 4500, "linkGbPerSecond": 900, "pcieGbPerSecond": 64,
    }
)  # fmt: skip

MINIMAX = ModelFacts(
    name="minimax-m2.5", parameters=228_700_000_000, hidden_size=3072, num_hidden_layers=62,
    num_attention_heads=48, num_key_value_heads=8, head_dim=128, intermediate_size=1536, vocab_size=200064,
    max_position_embeddings=196608, num_experts=256, num_experts_per_tok=8, moe_intermediate_size=1536,
    weight_bytes_per_parameter=1.0, weight_group=128, quantization="fp8",
)  # fmt: skip
# The language model; its image encoder (0.4 billion parameters) is not loaded for text.
KIMI = ModelFacts(
    name="kimi-k2.5", parameters=1_026_400_000_000, hidden_size=7168, num_hidden_layers=61,
    num_attention_heads=64, num_key_value_heads=64, head_dim=192, intermediate_size=18432, vocab_size=163840,
    max_position_embeddings=262144, num_experts=384, num_experts_per_tok=8, moe_intermediate_size=2048,
    kv_lora_rank=512, qk_rope_head_dim=64,
)  # fmt: skip
MODELS = {"MiniMaxAI/MiniMax-M2.5": MINIMAX, "moonshotai/Kimi-K2.5": KIMI}

# 4 bits and a scale of 8 bits for each group of 16 (NVFP4), of 16 bits for each 32 (Kimi's own INT4).
NVFP4 = {"quantization": "modelopt", "activations": "fp4", "weight_bytes_per_parameter": 0.5 + 1 / 16}
INT4 = {"quantization": "compressed-tensors", "activations": "", "weight_bytes_per_parameter": 0.5 + 2 / 32}


def measured_profile(system: str) -> AcceleratorProfileSpec | None:
    """The GPU of a row's `system`: a name of these tables, or of an AcceleratorProfile; None: unknown."""
    return B300 if system == "b300_sxm" else catalogue().get(SYSTEMS.get(system, system))


def measured_facts(path: str, precision: str) -> ModelFacts | str:
    """The model of a row's `model_path` with its weights in `precision`, or why that is not known."""
    found = MODELS.get(path)
    if found is None:
        told = model_facts(ModelSpec.model_validate({"uri": f"hf://{path}"}))
        if not isinstance(told, ModelFacts):
            return told.message
        found = told
    return _stored(found, precision)


def _stored(facts: ModelFacts, precision: str) -> ModelFacts | str:
    """Published weights in that precision as they are, else those of the usual checkpoint in it."""
    kinds = {"fp4": ("mxfp4",), "fp8": ("fp8",), "bf16": ("",), "bfloat16": ("",), "fp16": ("",), "float16": ("",)}
    if facts.quantization in kinds.get(precision, ()):
        return facts
    bare = replace(facts, quantization="", weight_group=None, weight_bytes_per_parameter=2.0)
    if precision == "fp8":
        return replace(bare, quantization="fp8", weight_bytes_per_parameter=WEIGHT_BYTES["fp8"], activations="fp8")
    if precision in ("fp4", "nvfp4"):
        return replace(bare, **NVFP4)  # type: ignore[arg-type]
    if precision == "int4":
        return replace(bare, **INT4)  # type: ignore[arg-type]
    known = "bf16, fp16, fp8, fp4, nvfp4, int4"
    return f"precision {precision!r} is not known; there are: {known}"
