# Hadamard with its environments, for the CPU or for NVIDIA GPUs:
#
#   docker build -t hadamard .
#   docker build -t hadamard:gpu --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cu130 .
#
#   docker run --rm -v "$PWD/runs:/data/runs" hadamard train pqn --env minatar/breakout
#   docker run --rm --gpus all -v "$PWD/runs:/data/runs" hadamard:gpu train pqn --env minatar/breakout
#
# The GPU variant needs NVIDIA's container toolkit on the host; CUDA comes with torch. Without
# Docker, python .ci/run_dockerfile.py runs the same commands in a fresh virtual environment.
FROM python:3.12-slim-bookworm

ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
ARG EXTRAS=atari,minatar,gym,box2d,play,report

# A compiler for Triton's kernels and torch.compile, and OpenGL for pictures of simulations.
RUN apt-get update && apt-get install -y --no-install-recommends g++ libegl1 libgl1 && rm -rf /var/lib/apt/lists/*

WORKDIR /opt/hadamard
RUN pip install --no-cache-dir torch --index-url "$TORCH_INDEX"
COPY pyproject.toml README.md LICENSE CHANGELOG.md ./
COPY src src
RUN pip install --no-cache-dir ".[$EXTRAS]"
RUN hadamard --version && hadamard envs minatar && python -c "from hadamard import HadamardLinear, diagnose"

# Runs are written to /data/runs, by a user who is not root.
RUN useradd --create-home trainer && mkdir -p /data/runs && chown trainer /data /data/runs
USER trainer
WORKDIR /data
ENTRYPOINT ["hadamard"]
CMD ["--help"]
