# syntax=docker/dockerfile:1
# headway on CPUs, with its server.
#
#   docker build -t headway .
#   docker run --rm -v headway-data:/data headway train tiny
#   docker run --rm -v headway-data:/data -p 127.0.0.1:8000:8000 -e HEADWAY_API_KEY=… headway
#
# Runs, caches and whatever else is written are in /data. Without a command it serves the last run.

FROM python:3.11.14-slim-bookworm AS build
# git for the version, in a stage that is thrown away
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends git \
    && rm -rf /var/lib/apt/lists/*
RUN python -m venv /opt/headway
ENV PATH=/opt/headway/bin:$PATH PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /src
COPY constraints.txt .
# torch first, in a layer of its own: the CPU build, which PyPI's is not.
RUN pip install --index-url https://download.pytorch.org/whl/cpu --extra-index-url https://pypi.org/simple -c constraints.txt torch numpy
COPY . .
RUN pip install -c constraints.txt '.[serve,cpu,eval,grammar]' && headway --version

FROM python:3.11.14-slim-bookworm
# Compilers are not installed: headway check leaves "compiled = eager" out, all else works.
RUN useradd --create-home --uid 10001 headway && mkdir /data && chown headway /data
COPY --from=build /opt/headway /opt/headway
ENV PATH=/opt/headway/bin:$PATH HEADWAY_CACHE=/data/cache HF_HOME=/data/huggingface NUMBA_CACHE_DIR=/data/numba PYTHONUNBUFFERED=1
USER 10001
WORKDIR /data
VOLUME /data
EXPOSE 8000
# Only a server listens; for other commands the check says nothing of use and fails harmlessly.
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/health', timeout=4)"]
ENTRYPOINT ["headway"]
CMD ["serve", "last", "--host", "0.0.0.0"]
