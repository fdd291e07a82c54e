# anchorscope on a CPU.   docker build -t anchorscope .
#   docker run --rm -v "$PWD:/work" -v anchorscope-models:/home/anchorscope/.cache anchorscope run small-models
# Two stages: what builds the wheel stays out of the image.
FROM python:3.12-slim AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /dist .

FROM python:3.12-slim
ENV PYTHONDONTWRITEBYTECODE=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 MPLCONFIGDIR=/tmp/matplotlib
# torch first and by itself: the CPU build, without the GPU libraries; it changes less often than we do
RUN pip install torch --index-url https://download.pytorch.org/whl/cpu
COPY --from=build /dist /dist
RUN pip install "$(ls /dist/*.whl)[hub,gguf]" \
 && useradd --create-home --uid 1000 anchorscope \
 && mkdir -p /work /home/anchorscope/.cache \
 && chown anchorscope: /work /home/anchorscope/.cache
USER anchorscope
# studies and runs; models and sets are kept in ~/.cache, a volume of one's own
WORKDIR /work
ENTRYPOINT ["anchorscope"]
CMD ["--help"]
