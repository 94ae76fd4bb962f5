# syntax=docker/dockerfile:1
# The proxy alone in a small image: `docker build -t plimsoll .`

FROM rust:1.95-slim-bookworm AS build
# The allocator is built with make, of any version, which the image does not have.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install --yes --no-install-recommends make
WORKDIR /src
COPY . .
# The caches live outside the layers: a second build compiles what changed.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --profile dist --locked --bin plimsoll \
    && cp target/dist/plimsoll /plimsoll \
    && strip /plimsoll \
    && mkdir /empty

FROM debian:bookworm-slim
# The roots that TLS to the upstream is checked against; nothing is installed.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /plimsoll /usr/local/bin/plimsoll
# A fresh volume takes over this directory's owner.
COPY --from=build --chown=65532:65532 /empty /data

# Inside a container nothing is reached on the loopback address; what is published is the host's
# decision. The admin port has metrics and health for everybody who reaches it. Its console and API answer
# nobody until PLIMSOLL__ADMIN__TOKEN is set (or PLIMSOLL__ADMIN__TOKEN_FILE, for a mounted secret).
ENV PLIMSOLL__SERVER__LISTEN=0.0.0.0:8787 \
    PLIMSOLL__SERVER__ADMIN=0.0.0.0:9187 \
    PLIMSOLL__STORE__PATH=/data
USER 65532:65532
WORKDIR /data
VOLUME /data
EXPOSE 8787 9187
STOPSIGNAL SIGTERM

HEALTHCHECK --interval=10s --timeout=5s --start-period=10s --retries=3 \
    CMD ["plimsoll", "health"]

ENTRYPOINT ["plimsoll"]
CMD ["serve"]
