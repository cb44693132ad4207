# One image for every process of a deployment; docker-compose.yml says which command runs where.
FROM python:3.13.1-slim-bookworm AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY shared shared
RUN python -m venv /opt/memoree \
    && /opt/memoree/bin/pip install --no-cache-dir --disable-pip-version-check '.[stack]'

FROM python:3.13.1-slim-bookworm
COPY --from=build /opt/memoree /opt/memoree
COPY functions /app/functions
# What the processes keep on this host may vanish with it; only the queue's directory is to outlive the container.
RUN mkdir --mode=0700 /queue && chown 10001:10001 /queue
ENV PATH=/opt/memoree/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    HOME=/tmp \
    MEMOREE_RUNTIME_DIR=/tmp/memoree
WORKDIR /app
USER 10001:10001
EXPOSE 7077
VOLUME /queue
# For the api. The other processes listen on nothing: its /readyz says when commands wait and nobody writes.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:7077/livez', timeout=4)"]
CMD ["uvicorn", "functions.api.app:app", "--host", "0.0.0.0", "--port", "7077", "--no-access-log", "--no-proxy-headers"]
