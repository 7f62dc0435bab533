"""From model, accelerator, workload and budget to a deployment, with its reasons (M3, M4, M7)."""
