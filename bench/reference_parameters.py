"""What the reference case was played with, in words: parameter, value, and why."""

from firsttoken.simulation import reference_case as case

PARAMETERS = (
    (
        "model",
        "Llama-2-7B, 16 bits",
        "A 7B model with a KV head for every head: 0.5 MiB of KV a token, so that 11 requests fit a GPU at its maximum "
        'length of 4096 ("10-odd", as told). Of Qwen2.5-7B (56 KiB a token) more than ten times as many would',
    ),
    (
        "layout",
        "8 replicas, one GPU each",
        "The model fits one GPU. Over all eight together KV for more than a hundred requests would be there, and a "
        "batch of prompts would take a tenth of the prefill times told",
    ),
    ("router", "smallest load", "The fairest to static batches of those that are simulated"),
    ("prompts, outputs", "800-1500, 300-500 tokens", "M8; each length equally often"),
    (
        "shared beginnings",
        "512 tokens, one of 16 documents (Zipf)",
        'System prompt and document blocks: "about 40 % of prefill skipped", 512 of 1150 on average',
    ),
    (
        "arrivals",
        f"Poisson, {case.REQUESTS_PER_SECOND:g} a second for {case.SECONDS:g} s",
        "The article names no load. **The one parameter that was set by a published figure**: with it GPUs are busy "
        "75 % of the time at the end. TTFT of 2.8 s at the baseline could not be used, see above",
    ),
    (
        "full load",
        f"{case.CLIENTS} clients a GPU, each sending its next request at once",
        "More than fit at any step. Concurrency, requests/s and the sawtooth are measured here: gaps for lack of "
        "requests are no scheduler's fault",
    ),
    (
        "KV cache",
        "the planner's memory budget, 0.92 of the memory",
        "The same at all steps; what an untiled score matrix takes is not subtracted (in favour of the baseline)",
    ),
    (
        "step times",
        "the planner's time model",
        "[Accuracy](accuracy.md); the A100-80GB was measured, the 40 GB one follows from its data sheet",
    ),
    ("**baseline**", "a server on plain PyTorch", "As they were before serving engines"),
    (
        "· attention",
        f"untiled, {case.EAGER_SCORE_BYTES} bytes of memory traffic a score",
        "transformers' eager attention: product, scale, mask, softmax in FP32, cast, product. Counted, not measured",
    ),
    (
        "· batches",
        "static, padded to the longest prompt",
        "What step 2 does away with. Who has ended costs nothing more here (in favour of the baseline)",
    ),
    (
        "· a pass",
        f"{case.EAGER_STEP_US / 1e3:.0f} ms at least",
        "The CPU launches kernels one by one: 25.5 tokens/s of Llama-7B on an A100 (PyTorch's blog, Accelerating "
        "Generative AI with PyTorch II)",
    ),
    ("· KV", f"{case.LONGEST} tokens reserved for each request", "M8; stays until step 4"),
    ("**step 1**", "the time model's attention", "FlashAttention's, fitted to measured kernels"),
    (
        "**step 2**",
        f"who comes joins the next step; token budget {case.CHUNK}",
        "The CPU's part of a step is vLLM's from here on, since no such scheduler is to be had without its engine",
    ),
    ("**step 3**", "prefix cache", "By block hash, per replica"),
    ("**step 4**", "KV by need", "Preemption by recompute"),
)
