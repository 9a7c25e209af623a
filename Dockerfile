# The program in an image, for docs/CLUSTER.md: docker build -t ztstream .
FROM debian:bookworm AS build
WORKDIR /ztstream
COPY scripts/setup.sh scripts/
RUN scripts/setup.sh
COPY . .
RUN cmake --preset release -DZT_DEVELOPER=OFF \
 && cmake --build --preset release --target ztstream \
 && cd build/release && cpack -G DEB -D CPACK_COMPONENTS_ALL=program

FROM debian:bookworm-slim
# libcurl, which is loaded when the first URL is opened, and what it trusts servers by.
RUN --mount=from=build,source=/ztstream/build/release,target=/packages \
    apt-get update \
 && apt-get install -y --no-install-recommends /packages/ztstream_*.deb libcurl4 ca-certificates \
 && rm -rf /var/lib/apt/lists/*
ENTRYPOINT ["ztstream"]
