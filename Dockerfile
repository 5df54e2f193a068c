# Holdfast without the embedded Postgres: it needs DATABASE_URL, and keys (HOLDFAST_API_KEYS_FILE).
# Migrations run out of band (`migrate` in place of `serve`), or at start with HOLDFAST_MIGRATE=1.
FROM node:22-slim AS console
WORKDIR /console
COPY app/console/web/package.json app/console/web/package-lock.json ./
RUN npm ci --omit=dev --ignore-scripts --no-audit --no-fund
COPY app/console/web ./
RUN node build.mjs /console/static

FROM python:3.13-slim AS build
ENV UV_PYTHON_DOWNLOADS=never UV_LINK_MODE=copy UV_COMPILE_BYTECODE=1
RUN pip install --no-cache-dir 'uv>=0.9,<1'
WORKDIR /holdfast
COPY pyproject.toml uv.lock README.md ./
# Packages of model providers: anthropic, google, google-cloud, openai. OpenAI-compatible servers need none.
ARG PROVIDERS=""
RUN uv sync --frozen --no-default-groups --extra nats --extra s3 ${PROVIDERS:+$(printf -- ' --extra=%s' $PROVIDERS)} --no-install-project
COPY migrations ./migrations
COPY app ./app
COPY --from=console /console/static ./app/console/static
COPY holdfast ./holdfast
RUN uv sync --frozen --no-default-groups --extra nats --extra s3 ${PROVIDERS:+$(printf -- ' --extra=%s' $PROVIDERS)} --no-editable

FROM python:3.13-slim
RUN useradd --system --uid 10001 --no-create-home holdfast
COPY --from=build /holdfast/.venv /holdfast/.venv
ENV PATH=/holdfast/.venv/bin:$PATH HOLDFAST_HOST=0.0.0.0 HOLDFAST_PORT=8000 HOLDFAST_HEALTH_PORT=8001 HOLDFAST_LOG_JSON=1
USER holdfast
EXPOSE 8000 8001
# A server answers at its port, a worker at its health port.
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s \
  CMD ["python", "-m", "app.cli.health_check"]
# Exec form: SIGTERM reaches the process, which hands its runs over.
ENTRYPOINT ["holdfast"]
CMD ["serve"]
